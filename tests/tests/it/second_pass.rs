//! The second pass has keys and values of its own.

use rys::{Context, Model, ModelParams, Spec};
use rys_tests::expand::expand;
use rys_tests::job::{Job, Params, Step};
use rys_tests::reference::Reference;
use rys_tests::state::{Cache, caches};
use rys_tests::synth::Synth;
use rys_tests::{patched, scratch};

/// K and V of every pass: `[eff]` of one layer's rows.
struct Passes {
    n_cells: usize,
    k: Vec<Vec<u8>>,
    v: Vec<Vec<u8>>,
}

impl Passes {
    /// `is_swa` of each pass says in which of the two caches it is.
    fn new(caches: &[Cache], is_swa: &[bool]) -> Self {
        let mut next = [0; 2];
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for &is_swa in is_swa {
            let which = usize::from(is_swa);
            k.push(caches[which].k[next[which]].clone());
            v.push(caches[which].v[next[which]].clone());
            next[which] += 1;
        }
        for (n, cache) in next.iter().zip(caches) {
            assert_eq!(cache.k.len(), *n);
        }
        let n_cells = caches[0].pos.len();
        Self { n_cells, k, v }
    }

    fn rows<'a>(&self, rows: &'a [Vec<u8>], eff: usize) -> impl Iterator<Item = &'a [u8]> {
        rows[eff].chunks(rows[eff].len() / self.n_cells)
    }
}

fn is_swa(ctx: &Context) -> Vec<bool> {
    ctx.passes().iter().map(|p| p.is_swa).collect()
}

fn check(arch: &'static str, text: &str) {
    let dir = scratch();
    let path = Synth::new(arch).write(dir.path());
    let model = Model::load(&path, ModelParams::new()).unwrap();
    let spec: Spec = text.parse().unwrap();
    let plan = model.plan(&spec).unwrap();
    let params = Params::default();
    let tokens: Vec<i32> = (0..20).map(|i| i * 37 % 128).collect();
    let steps = [
        Step::tokens(&tokens[..12], 0, 0),
        Step::tokens(&tokens[12..13], 12, 0),
        Step::tokens(&tokens[13..], 13, 0),
        Step::SeqState { seq: 0 },
    ];
    let job = Job::new(&path, &params, &steps);
    let n_caches = if arch == "gemma3" { 2 } else { 1 };

    let ctx = patched::context(&model, &params, Some(&spec)).unwrap();
    let ours = patched::run(&model, &job, Some(&spec));
    let passes = Passes::new(&caches(&ours.ok()[3], true, n_caches), &is_swa(&ctx));

    // of the first pass, and of the base, which it is up to the first repeat
    let base_ctx = patched::context(&model, &params, None).unwrap();
    let base = patched::run(&model, &job, None);
    let base_passes = Passes::new(&caches(&base.ok()[3], false, n_caches), &is_swa(&base_ctx));
    let first_repeat = spec.blocks()[0].end() as usize;
    assert!(passes.k[..first_repeat] == base_passes.k[..first_repeat]);
    assert!(passes.v[..first_repeat] == base_passes.v[..first_repeat]);

    let twin = dir.path().join("twin.gguf");
    expand(&path, plan.as_slice(), &twin);
    let theirs = Reference::start().run(&Job::new(&twin, &params, &steps));
    let twin_passes = Passes::new(&caches(&theirs.ok()[3], false, n_caches), &is_swa(&ctx));
    assert!(passes.k == twin_passes.k && passes.v == twin_passes.v);

    let mut n_repeats = 0;
    for (eff, &src) in plan.as_slice().iter().enumerate() {
        for rows in [&passes.k, &passes.v] {
            for row in passes.rows(rows, eff) {
                assert!(row.iter().any(|&b| b != 0), "pass {eff} has a row of zeros");
            }
        }
        let first = plan.as_slice().iter().position(|&s| s == src).unwrap();
        if first == eff {
            continue;
        }
        n_repeats += 1;
        for rows in [&passes.k, &passes.v] {
            let mut pairs = passes.rows(rows, eff).zip(passes.rows(rows, first));
            assert!(
                pairs.all(|(a, b)| a != b),
                "pass {eff} has a row of pass {first}"
            );
        }
    }
    assert_eq!(n_repeats, plan.as_slice().len() - model.n_layer() as usize);

    let logits = |o: &rys_tests::job::Outcome| o.outputs[..3].to_vec();
    assert!(
        logits(&ours)
            .iter()
            .zip(&logits(&base))
            .all(|(a, b)| a != b)
    );
    for _ in 0..3 {
        assert!(patched::run(&model, &job, Some(&spec)).ok() == ours.ok());
    }
    // and once more in the same context
    let mut ctx = ctx;
    for _ in 0..2 {
        for (step, before) in steps.iter().zip(ours.ok()) {
            assert!(patched::run_step(&mut ctx, step).unwrap().1 == *before);
        }
        ctx.clear(true).unwrap();
    }
}

#[test]
fn rows_of_llama() {
    check("llama", "2,4");
    check("llama", "0,6");
}

#[test]
fn rows_of_gemma3() {
    // both kinds of layers, and one kind each
    check("gemma3", "1,4");
    check("gemma3", "2,3;3,4");
}

/// Its cost is reported: as much memory for each repeat as for its layer.
#[test]
fn memory() {
    for (arch, text) in [("llama", "1,4"), ("gemma3", "1,4;4,6")] {
        let dir = scratch();
        let path = Synth::new(arch).write(dir.path());
        let model = Model::load(&path, ModelParams::new()).unwrap();
        let spec: Spec = text.parse().unwrap();
        let params = Params {
            swa_full: false,
            n_ctx: 512,
            n_ubatch: 32,
            ..Params::default()
        };
        let base = patched::context(&model, &params, None).unwrap();
        let ctx = patched::context(&model, &params, Some(&spec)).unwrap();
        let base = base.passes();
        let plan = model.plan(&spec).unwrap();
        for (pass, &src) in ctx.passes().iter().zip(plan.as_slice()) {
            let layer = &base[src as usize];
            assert_eq!((pass.src, layer.src), (src, src));
            assert_eq!(pass.is_swa, layer.is_swa);
            assert_eq!(pass.n_cells, if pass.is_swa { 256 } else { 512 });
            assert_eq!((pass.n_embd_k, pass.n_embd_v), (64, 64));
            // f16 K and V
            assert_eq!(pass.kv_bytes, u64::from(pass.n_cells) * 2 * 64 * 2);
            assert_eq!(pass.kv_bytes, layer.kv_bytes);
            assert_eq!((pass.rs_bytes, pass.is_recr), (0, false));
            assert_eq!(pass.buffer, layer.buffer);
            assert!(!pass.buffer.is_empty());
        }
    }
}
