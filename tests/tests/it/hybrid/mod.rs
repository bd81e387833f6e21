//! Gated delta nets beside full attention: which memory a repeat adds, and that its recurrent state is
//! its own and right.

mod recurrent;

use rys::{Model, ModelParams, Spec};
use rys_tests::job::{Job, Params, Step};
use rys_tests::kept::{self, PARTIAL_ONLY};
use rys_tests::log::{lines, value};
use rys_tests::synth::Synth;
use rys_tests::{patched, scratch, state};

use crate::pair::{Cell, Pair, short_steps, spec, tokens};

/// What a plan is known to cost on Qwen3.5-27B: passes, KV layers, recurrent states, and the repeats
/// as half-open ranges of effective positions.
type Row = (&'static str, u32, usize, usize, &'static [(u32, u32)]);

const TABLE: [Row; 7] = [
    ("33,34", 65, 16, 49, &[(34, 35)]),
    ("31,34", 67, 17, 50, &[(34, 37)]),
    ("30,35", 69, 17, 52, &[(35, 40)]),
    ("26,34", 72, 18, 54, &[(34, 42)]),
    ("24,35", 75, 18, 57, &[(35, 46)]),
    ("29,34", 69, 17, 52, &[(34, 39)]),
    ("43,45;28,34", 72, 18, 54, &[(34, 40), (51, 53)]),
];

/// A small model with the layers of Qwen3.5-27B: 64, every fourth of full attention.
fn of_64_layers() -> Synth {
    Synth {
        n_layer: 64,
        ..Synth::new("qwen35")
    }
}

/// Runs of consecutive layers that begin with a layer that ran before.
fn repeats(plan: &[i32], blocks: &[rys_plan::Block]) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for (eff, pair) in (1u32..).zip(plan.windows(2)) {
        if pair[1] != pair[0] + 1 {
            let block = blocks.iter().find(|b| b.start() == pair[1] as u32).unwrap();
            assert_eq!(
                pair[0] as u32,
                block.end() - 1,
                "jumps from the block's end"
            );
            found.push((eff, eff + block.end() - block.start()));
        }
    }
    found
}

/// llama.cpp's own sizes of a context's memory, and its numbers of layers.
fn sizes(log: &rys_tests::log::Pieces) -> Vec<String> {
    let memory = |l: &&String| l.contains("buffer size") || l.contains(" layers, ");
    let not_compute = |l: &&String| l.contains("KV") || l.contains("RS") || l.contains("size = ");
    lines(log)
        .iter()
        .filter(memory)
        .filter(not_compute)
        .filter(|l| !l.contains("compute buffer") && !l.contains("output buffer"))
        .cloned()
        .collect()
}

#[test]
fn memory_of_qwen35_27b() {
    let mut pair = Pair::new(&of_64_layers());
    let params = Params {
        n_seq_max: 4,
        ..Params::default()
    };
    let cell = Cell {
        steps: short_steps(4),
        params: params.clone(),
    };
    let base = pair.base(&cell);

    let kv_bytes = 4 * 256 * 2 * 64 * 2; // cells of all sequences, K and V, two heads of 32, f16
    let rs_bytes = 4 * 4 * (3 * (128 + 2 * 2 * 32) + 32 * 128); // sequences, f32, inputs and states
    let all = [("", 64, 16, 48, &[][..])].into_iter().chain(TABLE);
    for (text, n_layer_eff, n_kv, n_rs, seams) in all {
        let spec: Option<Spec> = (!text.is_empty()).then(|| spec(text));
        let ctx = patched::context(&pair.model, &params, spec.as_ref()).unwrap();
        let passes = ctx.passes();
        assert_eq!(ctx.n_layer_eff(), n_layer_eff, "{text}");
        assert_eq!(passes.iter().filter(|p| p.n_embd_k > 0).count(), n_kv);
        assert_eq!(passes.iter().filter(|p| p.rs_bytes > 0).count(), n_rs);
        for pass in &passes {
            let is_recr = pass.src % 4 != 3;
            let expected = if is_recr {
                (true, 0, 0, rs_bytes)
            } else {
                (false, 64, kv_bytes, 0)
            };
            let found = (pass.is_recr, pass.n_embd_k, pass.kv_bytes, pass.rs_bytes);
            assert_eq!(found, expected, "{text}: pass {} of {}", pass.eff, pass.src);
        }
        assert_eq!(ctx.kv_bytes(), n_kv as u64 * kv_bytes);
        assert_eq!(ctx.rs_bytes(), n_rs as u64 * rs_bytes);

        let Some(spec) = spec else { continue };
        assert_eq!(repeats(ctx.reported_plan(), spec.blocks()), seams, "{text}");
        // the model of costs says the same
        let cost = ctx.cost().unwrap();
        assert_eq!((cost.plan.n_kv, cost.plan.n_rs), (n_kv as u32, n_rs as u32));
        assert_eq!(cost.plan.kv_bytes, ctx.kv_bytes());
        assert_eq!(cost.plan.rs_bytes, ctx.rs_bytes());

        // and so does an unpatched llama.cpp of the expanded file
        let job = Job {
            verbose: true,
            ..Job::new(pair.twin(&spec), &params, &cell.steps)
        };
        let theirs = pair.reference.run(&job);
        let ours = patched::run(&pair.model, &job, Some(&spec));
        assert!(ours.ok() == theirs.ok(), "{text}");
        assert!(ours.outputs != base);
        assert_eq!(sizes(&ours.log), sizes(&theirs.log), "{text}");
        assert!(sizes(&ours.log).len() >= 4, "{:#?}", sizes(&ours.log));
        let n_layers = format!("{n_kv} layers");
        assert!(sizes(&ours.log).iter().any(|l| l.contains(&n_layers)));
        std::fs::remove_file(pair.twin(&spec)).unwrap();
    }
}

/// The second pass has a state of its own: not zero, not the first's, and the expanded file's.
#[test]
fn states_differ() {
    for arch in recurrent::ARCHS {
        let dir = scratch();
        let path = Synth::new(arch).write(dir.path());
        let model = Model::load(&path, ModelParams::new()).unwrap();
        for text in ["1,2", "2,7", "0,8"] {
            let spec = spec(text);
            let plan = model.plan(&spec).unwrap();
            let recr: Vec<u32> = plan
                .as_slice()
                .iter()
                .copied()
                .filter(|il| il % 4 != 3)
                .collect();
            let mut ctx = patched::context(&model, &Params::default(), Some(&spec)).unwrap();
            let t = tokens(30, 13);
            let mut before = Vec::new();
            for (at, n) in [(0, 20), (20, 1), (21, 1), (22, 8)] {
                patched::run_step(&mut ctx, &Step::tokens(&t[at..at + n], at as i32, 0)).unwrap();
                let states =
                    state::recurrent(&kept::get(&mut ctx, 0, PARTIAL_ONLY), true, recr.len());
                assert!(states != before, "{arch} {text}: no step changes it");
                for (i, state) in states.iter().enumerate() {
                    let floats = |bytes: &[u8]| -> Vec<f32> {
                        let (floats, _) = bytes.as_chunks();
                        floats.iter().map(|&b| f32::from_le_bytes(b)).collect()
                    };
                    for part in [&state.r, &state.s] {
                        let part = floats(part);
                        assert!(part.iter().all(|f| f.is_finite()));
                        let n_zero = part.iter().filter(|&&f| f == 0.0).count();
                        assert!(n_zero * 10 < part.len(), "{arch} {text} {i}: {n_zero}");
                    }
                    for (j, other) in states[..i].iter().enumerate() {
                        assert!(other.r != state.r && other.s != state.s, "{arch} {i} {j}");
                    }
                }
                before = states;
            }
        }
    }
}

/// The sizes are in the log too, for every sequence and every snapshot.
#[test]
fn snapshots_cost_memory() {
    let mut pair = Pair::new(&Synth::new("qwen35"));
    for (n_seq_max, n_rs_seq) in [(1, 0), (1, 4), (4, 2)] {
        let params = Params {
            n_seq_max,
            n_rs_seq,
            ..Params::default()
        };
        let spec = spec("2,7");
        let job = Job {
            verbose: true,
            ..Job::new(pair.twin(&spec), &params, &short_steps(1))
        };
        let theirs = pair.reference.run(&job);
        let ours = patched::run(&pair.model, &job, Some(&spec));
        assert!(ours.ok() == theirs.ok());
        assert_eq!(sizes(&ours.log), sizes(&theirs.log));
        let ctx = patched::context(&pair.model, &params, Some(&spec)).unwrap();
        let log = lines(&ours.log);
        let mib = value(&log, "RS buffer size =").split_whitespace().next();
        let expected = format!("{:.2}", ctx.rs_bytes() as f64 / 1024.0 / 1024.0);
        assert_eq!(mib, Some(&expected[..]));
        assert_eq!(ctx.cost().unwrap().plan.rs_bytes, ctx.rs_bytes());
    }
}
