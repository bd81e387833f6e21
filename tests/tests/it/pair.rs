//! A model on both sides, and the ways to run it.

use std::path::{Path, PathBuf};

use rys::{CacheType, Model, ModelParams, Spec};
use rys_tests::expand::expand;
use rys_tests::job::{Job, Outcome, Params, Step};
use rys_tests::reference::Reference;
use rys_tests::synth::{N_VOCAB, Synth};
use rys_tests::{log, patched, scratch};
use tempfile::TempDir;

const TYPES: [CacheType; 3] = [CacheType::F16, CacheType::Q8_0, CacheType::Q4_0];

/// A model, its patched side and its reference.
pub struct Pair {
    pub dir: TempDir,
    pub path: PathBuf,
    pub model: Model,
    pub reference: Reference,
}

impl Pair {
    pub fn new(synth: &Synth) -> Self {
        let dir = scratch();
        let path = synth.write(dir.path());
        Self::of(dir, path)
    }

    pub fn of(dir: TempDir, path: PathBuf) -> Self {
        Self {
            model: Model::load(&path, ModelParams::new()).unwrap(),
            reference: Reference::start(),
            dir,
            path,
        }
    }

    pub fn n_layer(&self) -> u32 {
        self.model.n_layer()
    }

    /// The expanded file of a spec.
    pub fn twin(&self, spec: &Spec) -> PathBuf {
        let path = self.dir.path().join(format!("twin {spec}.gguf"));
        if !path.exists() {
            let plan = self.model.plan(spec).unwrap();
            expand(&self.path, plan.as_slice(), &path);
        }
        path
    }

    /// The same job on both sides: a plan here, a file there.
    pub fn run(&mut self, spec: Option<&Spec>, twin: &Path, cell: &Cell) -> (Outcome, Outcome) {
        let job = Job::new(twin, &cell.params, &cell.steps);
        self.reference.send(&job);
        let ours = patched::run(&self.model, &job, spec);
        (ours, self.reference.receive())
    }

    /// Compares a plan with its twin and with the base, and returns its logits.
    pub fn check(&mut self, spec: &Spec, cell: &Cell, base: &[Vec<u8>]) -> Vec<Vec<u8>> {
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
    pub fn base(&mut self, cell: &Cell) -> Vec<Vec<u8>> {
        let path = self.path.clone();
        let (ours, theirs) = self.run(None, &path, cell);
        assert!(ours.ok() == theirs.ok(), "base: {:?}", cell.params);
        ours.outputs
    }
}

/// One way to run a model.
#[derive(Clone)]
pub struct Cell {
    pub params: Params,
    pub steps: Vec<Step>,
}

pub fn tokens(n: usize, seed: u64) -> Vec<i32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| rng.i32(0..N_VOCAB as i32)).collect()
}

/// A batch, single tokens and a batch again; for four sequences a batch of all, a token of each, and
/// a batch of one.
pub fn short_steps(n_seq: u32) -> Vec<Step> {
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
pub fn cells() -> (Vec<Cell>, Vec<Cell>) {
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
pub fn blocks(n_layer: u32) -> Vec<Spec> {
    (0..n_layer)
        .flat_map(|i| (i + 1..=n_layer).map(move |j| spec(&format!("{i},{j}"))))
        .collect()
}

/// Every pair of blocks that do not overlap; some touch.
pub fn pairs(n_layer: u32) -> Vec<Spec> {
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

pub fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

/// Every block in every valid cell, every pair of blocks in two cells, and the refusal of the others.
pub fn check(synth: &Synth) {
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
pub fn refused(ours: &Outcome, theirs: &Outcome, reason: &str) {
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
