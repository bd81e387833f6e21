//! A plan gives the logits of the physically expanded model on an unpatched llama.cpp, byte for byte.

use std::path::{Path, PathBuf};

use rys::{CacheType, Model, ModelParams, Plan, Spec};
use rys_tests::expand::expand;
use rys_tests::job::{Job, Outcome, Params, Step};
use rys_tests::reference::Reference;
use rys_tests::synth::{N_SWA, N_VOCAB, Synth};
use rys_tests::{log, patched, real, scratch};
use tempfile::TempDir;

const TYPES: [CacheType; 3] = [CacheType::F16, CacheType::Q8_0, CacheType::Q4_0];

/// A model, its patched side and its reference.
struct Pair {
    dir: TempDir,
    path: PathBuf,
    model: Model,
    reference: Reference,
}

impl Pair {
    fn new(synth: &Synth) -> Self {
        let dir = scratch();
        let path = synth.write(dir.path());
        Self::of(dir, path)
    }

    fn of(dir: TempDir, path: PathBuf) -> Self {
        Self {
            model: Model::load(&path, ModelParams::new()).unwrap(),
            reference: Reference::start(),
            dir,
            path,
        }
    }

    fn n_layer(&self) -> u32 {
        self.model.n_layer()
    }

    /// The expanded file of a spec.
    fn twin(&self, spec: &Spec) -> PathBuf {
        let path = self.dir.path().join(format!("twin {spec}.gguf"));
        if !path.exists() {
            let plan: Plan = self.model.plan(spec).unwrap();
            expand(&self.path, plan.as_slice(), &path);
        }
        path
    }

    /// The same job on both sides: a plan here, a file there.
    fn run(&mut self, spec: Option<&Spec>, twin: &Path, cell: &Cell) -> (Outcome, Outcome) {
        let job = Job::new(twin, &cell.params, &cell.steps);
        self.reference.send(&job);
        let ours = patched::run(&self.model, &job, spec);
        (ours, self.reference.receive())
    }

    /// Compares a plan with its twin and with the base, and returns its logits.
    fn check(&mut self, spec: &Spec, cell: &Cell, base: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let twin = self.twin(spec);
        let (ours, theirs) = self.run(Some(spec), &twin, cell);
        let shown = || format!("{} {spec} {:?}", self.model.arch(), cell.params);
        assert_eq!(ours.error, None, "{}", shown());
        assert_eq!(theirs.error, None, "{}", shown());
        assert_eq!(ours.rets, theirs.rets, "{}", shown());
        assert!(ours.outputs == theirs.outputs, "differs: {}", shown());
        assert!(ours.logits().iter().all(|l| l.is_finite()), "{}", shown());
        let same = |(a, b): (&Vec<u8>, &Vec<u8>)| a == b;
        assert!(
            !ours.outputs.iter().zip(base).any(same),
            "as without a plan: {}",
            shown()
        );
        ours.outputs
    }

    /// The model without a plan, which must be the same on both sides too.
    fn base(&mut self, cell: &Cell) -> Vec<Vec<u8>> {
        let path = self.path.clone();
        let (ours, theirs) = self.run(None, &path, cell);
        assert!(ours.ok() == theirs.ok(), "base: {:?}", cell.params);
        ours.outputs
    }
}

/// One way to run a model.
#[derive(Clone)]
struct Cell {
    params: Params,
    steps: Vec<Step>,
}

fn tokens(n: usize, seed: u64) -> Vec<i32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| rng.i32(0..N_VOCAB as i32)).collect()
}

/// A batch, single tokens and a batch again; for four sequences a batch of all, a token of each, and
/// a batch of one.
fn short_steps(n_seq: u32) -> Vec<Step> {
    if n_seq == 1 {
        let t = tokens(25, 1);
        return vec![
            Step::tokens(&t[..17], 0, 0),
            Step::tokens(&t[17..18], 17, 0),
            Step::tokens(&t[18..19], 18, 0),
            Step::tokens(&t[19..], 19, 0),
        ];
    }
    let t: Vec<Vec<i32>> = (0..4).map(|s| tokens(10, s)).collect();
    let part = |a: usize, b: usize| t.iter().map(|t| &t[a..b]).collect::<Vec<_>>();
    vec![
        Step::sequences(&part(0, 6), 0),
        Step::sequences(&part(6, 7), 6),
        Step::tokens(&t[2][7..10], 7, 2),
    ]
}

/// Every combination of the parameters, in the order of `Params`; the second value has those that
/// llama.cpp refuses: a quantized V cache needs flash attention.
fn cells() -> (Vec<Cell>, Vec<Cell>) {
    let mut all = Vec::new();
    for (n_seq_max, kv_unified) in [(1, false), (4, false), (4, true)] {
        for n_ubatch in [256, 8] {
            for flash_attn in [true, false] {
                for type_k in TYPES {
                    for type_v in TYPES {
                        let params = Params {
                            n_ubatch,
                            n_seq_max,
                            kv_unified,
                            flash_attn,
                            type_k,
                            type_v,
                            ..Params::default()
                        };
                        let steps = short_steps(n_seq_max);
                        all.push(Cell { params, steps });
                    }
                }
            }
        }
    }
    all.into_iter()
        .partition(|c| c.params.flash_attn || c.params.type_v == CacheType::F16)
}

/// Every block of the model.
fn blocks(n_layer: u32) -> Vec<Spec> {
    (0..n_layer)
        .flat_map(|i| (i + 1..=n_layer).map(move |j| spec(&format!("{i},{j}"))))
        .collect()
}

/// Every pair of blocks that do not overlap; some touch.
fn pairs(n_layer: u32) -> Vec<Spec> {
    let mut all = Vec::new();
    for i in 0..n_layer {
        for j in i + 1..=n_layer {
            for k in j..n_layer {
                all.extend((k + 1..=n_layer).map(|l| spec(&format!("{i},{j};{k},{l}"))));
            }
        }
    }
    all
}

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

/// Every block in every valid cell, every pair of blocks in two cells, and the refusal of the others.
fn check(synth: &Synth) {
    let mut pair = Pair::new(synth);
    let (valid, invalid) = cells();
    assert_eq!((valid.len(), invalid.len()), (72, 36));
    let base: Vec<_> = valid.iter().map(|cell| pair.base(cell)).collect();

    let mut before: Option<Vec<Vec<u8>>> = None;
    for spec in blocks(pair.n_layer()) {
        for (cell, base) in valid.iter().zip(&base) {
            let ours = pair.check(&spec, cell, base);
            if cell.params == Params::default() {
                // the comparison can fail: another plan's logits are not these
                assert!(before.as_ref() != Some(&ours), "{spec}");
                before = Some(ours);
            }
        }
    }
    for spec in pairs(pair.n_layer()) {
        for (cell, base) in [&valid[0], &valid[valid.len() - 1]]
            .into_iter()
            .zip([&base[0], &base[valid.len() - 1]])
        {
            pair.check(&spec, cell, base);
        }
    }

    let twin = pair.twin(&spec("2,4"));
    for cell in &invalid {
        let (ours, theirs) = pair.run(Some(&spec("2,4")), &twin, cell);
        refused(
            &ours,
            &theirs,
            "quantized V cache requires flash_attn to be enabled",
        );
    }
}

/// Both sides refuse a context, and for this reason.
fn refused(ours: &Outcome, theirs: &Outcome, reason: &str) {
    assert_eq!(theirs.error.as_deref(), Some("llama_init_from_model: NULL"));
    let line = |log| {
        let lines: Vec<String> = log::lines(log);
        lines
            .into_iter()
            .find(|l| l.starts_with("error: "))
            .unwrap()
    };
    assert!(line(&theirs.log).contains(reason), "{:?}", theirs.log);
    assert_eq!(line(&ours.log), line(&theirs.log));
    assert!(ours.error.as_ref().unwrap().contains(reason), "{ours:?}");
}

#[test]
fn llama() {
    check(&Synth::new("llama"));
}

#[test]
fn qwen2() {
    check(&Synth::new("qwen2"));
}

#[test]
fn qwen3() {
    check(&Synth::new("qwen3"));
}

#[test]
fn qwen3moe() {
    check(&Synth::new("qwen3moe"));
}

#[test]
fn gemma3() {
    check(&Synth::new("gemma3"));
}

/// Cells of sliding-window layers are used again: the text is longer than their cache.
#[test]
fn gemma3_recycled_cells() {
    let mut pair = Pair::new(&Synth::new("gemma3"));
    let mut cells = Vec::new();
    for swa_full in [false, true] {
        for (flash_attn, type_kv) in [
            (true, CacheType::F16),
            (false, CacheType::F16),
            (true, CacheType::Q8_0),
            (true, CacheType::Q4_0),
        ] {
            for (n_seq_max, kv_unified) in [(1, false), (4, true)] {
                cells.push(recycling_cell(Params {
                    n_seq_max,
                    kv_unified,
                    flash_attn,
                    type_k: type_kv,
                    type_v: type_kv,
                    swa_full,
                    ..Params::default()
                }));
            }
        }
        cells.push(recycling_cell(Params {
            n_seq_max: 4,
            swa_full,
            ..Params::default()
        }));
    }
    let base: Vec<_> = cells.iter().map(|cell| pair.base(cell)).collect();
    for spec in blocks(pair.n_layer()) {
        for (cell, base) in cells.iter().zip(&base) {
            pair.check(&spec, cell, base);
        }
    }

    // such a cache has forgotten the beginning, and a full one has not
    for (cell, forgotten) in [(&cells[0], true), (&cells[cells.len() / 2], false)] {
        let mut ctx = patched::context(&pair.model, &cell.params, Some(&spec("2,5"))).unwrap();
        for step in &cell.steps {
            patched::run_step(&mut ctx, step).unwrap();
        }
        let swa = ctx.passes().into_iter().filter(|p| p.is_swa);
        let n_cells: Vec<u32> = swa.map(|p| p.n_cells).collect();
        let n_expected = if forgotten { 256 } else { 512 };
        assert_eq!(n_cells, vec![n_expected; 7]);
        assert_eq!(ctx.seq_pos_min(0).unwrap() > Some(0), forgotten);
    }
}

/// More tokens than 256 cells and a window, over all sequences or in each.
fn recycling_cell(params: Params) -> Cell {
    let n_seq = params.n_seq_max as usize;
    let each = if params.kv_unified { 80 } else { 300 };
    let t: Vec<Vec<i32>> = (0..n_seq).map(|s| tokens(each, s as u64)).collect();
    let part = |a: usize, b: usize| {
        let rows: Vec<&[i32]> = t.iter().map(|t| &t[a..b]).collect();
        Step::sequences(&rows, a as i32)
    };
    let mut steps = Vec::new();
    let mut at = 0;
    while at < each - 4 {
        let next = (at + 60 / n_seq).min(each - 4);
        steps.push(part(at, next));
        at = next;
    }
    steps.extend((at..each).map(|i| part(i, i + 1)));
    assert!(each * n_seq > 256 + N_SWA as usize);
    Cell {
        params: Params {
            n_ctx: if params.kv_unified {
                512
            } else {
                512 * params.n_seq_max
            },
            n_ubatch: 32,
            ..params
        },
        steps,
    }
}

/// A head size that the blocks of a quantized cache do not divide is refused as it is upstream.
#[test]
fn cache_types_and_head_sizes() {
    for arch in ["llama", "gemma3"] {
        let mut pair = Pair::new(&Synth {
            head: 16,
            ..Synth::new(arch)
        });
        let twin = pair.twin(&spec("2,4"));
        for (type_k, type_v, reason) in [
            (
                CacheType::Q8_0,
                CacheType::F16,
                "K cache type q8_0 with block size 32 does not divide n_embd_head_k=16",
            ),
            (
                CacheType::F16,
                CacheType::Q4_0,
                "V cache type q4_0 with block size 32 does not divide n_embd_head_v=16",
            ),
        ] {
            let params = Params {
                type_k,
                type_v,
                ..Params::default()
            };
            let cell = Cell {
                params,
                steps: short_steps(1),
            };
            let (ours, theirs) = pair.run(Some(&spec("2,4")), &twin, &cell);
            refused(&ours, &theirs, reason);
        }
    }
}

/// A real model against its expanded file, through prompt batches and single tokens.
fn check_real(path: PathBuf, specs: &[&str], params: &Params, steps: fn(&Model) -> Vec<Step>) {
    let mut pair = Pair::of(scratch(), path);
    let cell = Cell {
        params: params.clone(),
        steps: steps(&pair.model),
    };
    let base = pair.base(&cell);
    for text in specs {
        let spec = spec(text);
        pair.check(&spec, &cell, &base);
        std::fs::remove_file(pair.twin(&spec)).unwrap();
    }
}

fn real_steps(model: &Model) -> Vec<Step> {
    let t = crate::off::text_tokens(model, 60);
    let mut steps = vec![
        Step::tokens(&t[..37], 0, 0),
        Step::tokens(&t[37..50], 37, 0),
    ];
    steps.extend((50..60).map(|i| Step::tokens(&t[i..=i], i as i32, 0)));
    steps
}

/// A text longer than window and batch together, with outputs at its end.
fn real_long_steps(model: &Model) -> Vec<Step> {
    let t = crate::off::text_tokens(model, 900);
    let mut steps = Vec::new();
    for at in (0..880).step_by(110) {
        let mut step = Step::tokens(&t[at..at + 110], at as i32, 0);
        if let Step::Decode { output, .. } = &mut step {
            output[..109].fill(0);
        }
        steps.push(step);
    }
    steps.extend((880..900).map(|i| Step::tokens(&t[i..=i], i as i32, 0)));
    steps
}

#[test]
fn real_smollm2() {
    let specs = ["10,14", "0,30", "29,30", "5,9;9,12"];
    check_real(real::smollm2(), &specs, &Params::default(), real_steps);
}

#[test]
fn real_gemma3() {
    // one global layer, one sliding-window layer, both kinds, and a whole period
    let specs = ["5,6", "3,4", "2,9", "6,12"];
    check_real(real::gemma3(), &specs, &Params::default(), real_steps);
}

#[test]
fn real_gemma3_recycled_cells() {
    let params = Params {
        n_ctx: 1024,
        n_ubatch: 128,
        swa_full: false,
        ..Params::default()
    };
    check_real(real::gemma3(), &["4,7"], &params, real_long_steps);
}
