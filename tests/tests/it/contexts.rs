//! What a context refuses, what it reports, and what does not inherit a plan.

use std::ffi::CStr;
use std::ptr;

use llama_sys as sys;
use rys::{Context, Model, ModelParams, Spec};
use rys_tests::graph::mtp_logits;
use rys_tests::job::{Params, Step};
use rys_tests::log::{capture, lines};
use rys_tests::synth::Synth;
use rys_tests::{patched, real, scratch, server};
use tempfile::TempDir;
use xtask::server::Server;

fn model(synth: &Synth) -> (TempDir, Model) {
    let dir = scratch();
    let path = synth.write(dir.path());
    let model = Model::load(path, ModelParams::new()).unwrap();
    (dir, model)
}

/// With its MTP layers.
fn model_with_mtp(synth: &Synth) -> (TempDir, Model) {
    let dir = scratch();
    let path = synth.write(dir.path());
    let model = Model::load(path, ModelParams::new().mtp(true)).unwrap();
    (dir, model)
}

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

/// A context made through the C interface, with any blocks. Freed by the caller.
fn raw(
    model: &Model,
    blocks: *const sys::llama_layer_block,
    n: usize,
    ctx_type: sys::llama_context_type,
) -> (*mut sys::llama_context, Vec<String>) {
    let (ctx, log) = capture(|| {
        let mut ctx = ptr::null_mut();
        let mut err = sys::rys_error { text: [0; 1024] };
        // SAFETY: the model is alive; `blocks` is what a test hands over.
        let status = unsafe {
            let params = sys::llama_context_params {
                n_ctx: 256,
                ctx_type,
                repeat_layers: blocks,
                n_repeat_layers: n,
                ..sys::llama_context_default_params()
            };
            sys::rys_init_from_model(model.as_ptr(), params, &mut ctx, &mut err)
        };
        assert_eq!(status, 0, "{err:?}");
        ctx
    });
    (ctx, lines(&log))
}

fn block(start: i32, end: i32) -> sys::llama_layer_block {
    sys::llama_layer_block { start, end }
}

/// NULL and one line that says why.
fn refused(model: &Model, blocks: &[(i32, i32)], reason: &str) {
    let blocks: Vec<_> = blocks.iter().map(|&(s, e)| block(s, e)).collect();
    let at = blocks.as_ptr();
    let (ctx, log) = raw(model, at, blocks.len(), sys::LLAMA_CONTEXT_TYPE_DEFAULT);
    assert!(ctx.is_null(), "{blocks:?}");
    let errors: Vec<_> = log.iter().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{log:#?}");
    assert!(errors[0].contains(reason), "{blocks:?}: {}", errors[0]);
}

#[test]
fn bad_blocks() {
    let (_dir, model) = model(&Synth::new("llama"));
    let refused = |blocks: &[(i32, i32)], reason| refused(&model, blocks, reason);
    let range = "needs 0 <= start < end";
    refused(&[(3, 3)], range);
    refused(&[(4, 3)], range);
    refused(&[(-1, 3)], range);
    refused(&[(i32::MIN, i32::MIN)], range);
    refused(&[(2, 4), (0, 0)], range);
    refused(
        &[(5, 7)],
        "block 5,7 ends after the model's 6 layers; use end <= 6",
    );
    refused(&[(0, i32::MAX)], "ends after the model's 6 layers");
    refused(&[(2, 4), (3, 5)], "blocks 2,4 and 3,5 overlap");
    refused(&[(3, 5), (2, 4)], "blocks 2,4 and 3,5 overlap");
    refused(&[(2, 4), (2, 4)], "blocks 2,4 and 2,4 overlap");
    refused(&[(0, 6), (0, 6), (0, 6)], "overlap");

    let (ctx, log) = raw(&model, ptr::null(), 1, sys::LLAMA_CONTEXT_TYPE_DEFAULT);
    assert!(ctx.is_null());
    let reason = "n_repeat_layers is 1 but repeat_layers is NULL";
    assert!(log.iter().any(|l| l.contains(reason)), "{log:#?}");

    // a pointer without a count is no plan
    let unused = [block(2, 4)];
    let (ctx, _) = raw(&model, unused.as_ptr(), 0, sys::LLAMA_CONTEXT_TYPE_DEFAULT);
    assert_eq!(reported(ctx), [0, 1, 2, 3, 4, 5]);

    // any order, and the blocks are read during the call only
    let mut blocks = [block(4, 5), block(1, 3), block(3, 4)];
    let (ctx, _) = raw(&model, blocks.as_ptr(), 3, sys::LLAMA_CONTEXT_TYPE_DEFAULT);
    blocks.fill(block(-7, -7));
    assert_eq!(reported(ctx), [0, 1, 2, 1, 2, 3, 3, 4, 4, 5]);
}

/// The plan that a context reports; frees it.
fn reported(ctx: *mut sys::llama_context) -> Vec<i32> {
    assert!(!ctx.is_null());
    // SAFETY: a context of this test, which nothing else uses.
    unsafe {
        let n = sys::llama_n_layer_eff(ctx);
        let plan = std::slice::from_raw_parts(sys::llama_layer_plan(ctx), n as usize).to_vec();
        let mut info: sys::llama_layer_pass = std::mem::zeroed();
        for (eff, &src) in (0..n).zip(&plan) {
            assert!(sys::llama_layer_pass_info(ctx, eff, &mut info));
            assert_eq!(info.src, src);
            assert!(!info.buft.is_null());
        }
        for eff in [-1, n, i32::MIN, i32::MAX] {
            assert!(!sys::llama_layer_pass_info(ctx, eff, &mut info));
        }
        assert!(!sys::llama_layer_pass_info(ctx, 0, ptr::null_mut()));
        sys::llama_free(ctx);
        plan
    }
}

#[test]
fn more_passes_than_llama_cpp_can_run() {
    let synth = Synth {
        n_layer: 300,
        n_embd: 32,
        n_ff: 32,
        n_head: 1,
        n_head_kv: 1,
        ..Synth::new("llama")
    };
    let (_dir, model) = model(&synth);
    refused(
        &model,
        &[(0, 213)],
        "makes 513 passes, at most 512 are possible",
    );
    refused(&model, &[(0, 300)], "makes 600 passes");
    let largest = [block(0, 212)];
    let (ctx, _) = raw(&model, largest.as_ptr(), 1, sys::LLAMA_CONTEXT_TYPE_DEFAULT);
    assert_eq!(reported(ctx).len(), 512);
}

#[test]
fn without_a_plan_the_identity() {
    for arch in ["llama", "gemma3"] {
        let (_dir, model) = model(&Synth::new(arch));
        let (ctx, _) = raw(&model, ptr::null(), 0, sys::LLAMA_CONTEXT_TYPE_DEFAULT);
        let identity: Vec<i32> = (0..model.n_layer() as i32).collect();
        assert_eq!(reported(ctx), identity);
        let ctx = patched::context(&model, &Params::default(), None).unwrap();
        assert_eq!(ctx.reported_plan(), identity);
        assert!(ctx.plan().is_none());
    }
}

#[test]
fn unsupported_architecture() {
    // SAFETY: a NUL-terminated text that lives forever.
    let archs = unsafe { CStr::from_ptr(sys::llama_layer_plan_archs()) };
    let archs = archs.to_str().unwrap();
    assert!(!archs.contains("internlm2"));
    let (_dir, model) = model(&Synth::new("internlm2"));
    let reason = format!("architecture 'internlm2' is not supported (supported: {archs})");
    refused(&model, &[(2, 4)], &reason);
    // before anything else is looked at
    refused(&model, &[(-1, -1)], &reason);

    let error = patched::context(&model, &Params::default(), Some(&spec("2,4"))).err();
    let text = error.unwrap().to_string();
    assert!(
        text.contains("'internlm2'") && text.contains(archs),
        "{text}"
    );
    patched::context(&model, &Params::default(), None).unwrap();
}

/// An MTP context drafts for a target with a plan and runs its own layer once.
#[test]
fn mtp_has_no_plan() {
    for arch in ["qwen35", "qwen35moe", "qwen3next"] {
        let synth = Synth::new(arch).mtp();
        let n_layer = synth.n_layer;
        let (_dir, model) = model_with_mtp(&synth);
        assert_eq!((model.n_layer(), model.n_layer_nextn()), (n_layer, 1));

        let blocks = [block(2, 4)];
        let identity: Vec<i32> = (0..n_layer as i32).collect();
        let mut logs = Vec::new();
        for n in [0, 1] {
            let (ctx, log) = raw(&model, blocks.as_ptr(), n, sys::LLAMA_CONTEXT_TYPE_MTP);
            assert_eq!(reported(ctx), identity);
            logs.push(log);
        }
        // every size is the same
        assert_eq!(logs[0], logs[1]);
        let logits = mtp_logits(&model, None);
        assert!(logits.iter().all(|l| l.is_finite()));
        assert_eq!(logits, mtp_logits(&model, Some(&spec("2,4"))));

        let (ctx, _) = raw(&model, blocks.as_ptr(), 1, sys::LLAMA_CONTEXT_TYPE_DEFAULT);
        assert_eq!(reported(ctx).len(), n_layer as usize + 2);
        let past = n_layer as i32 + 1;
        let reason = "it reaches into the MTP block, which is never repeated";
        refused(&model, &[(3, past)], reason);
    }
}

/// The context of a draft model is made from a copy of the target's parameters.
#[test]
fn draft_model_has_no_plan() {
    let path = real::smollm2();
    let path = path.to_str().unwrap();
    let args = ["-m", path, "-md", path, "--spec-type", "draft-simple"];
    let size = ["-c", "512", "-t", "1", "-fit", "off", "-lv", "4"];
    let caches = |plan: &[&str]| -> Vec<String> {
        let args = [&args[..], &size, plan].concat();
        let server = Server::start(&server::program(), &args).unwrap();
        let log = server.log();
        let sizes = log
            .lines()
            .filter_map(|l| l.split_once("llama_kv_cache: size = "));
        sizes.map(|(_, size)| size.to_owned()).collect()
    };
    let base = caches(&[]);
    let plan = caches(&["--repeat-layers", "10,14"]);
    let [target, draft] = &plan[..] else {
        panic!("{plan:#?}");
    };
    assert!(target.contains(" 34 layers"), "{target}");
    assert!(draft.contains(" 30 layers"), "{draft}");
    assert_eq!(base, [draft.clone(), draft.clone()]);
}

const N_FILLED: i32 = 12;

/// A context with some tokens in it; fewer than the window, or a restored cache would use cells again
/// and add in another order.
fn filled(model: &Model, text: Option<&str>) -> Context {
    let params = Params {
        n_seq_max: 2,
        kv_unified: true,
        ..Params::default()
    };
    let mut ctx = patched::context(model, &params, text.map(spec).as_ref()).unwrap();
    let tokens: Vec<i32> = (0..N_FILLED).map(|i| i * 31 % 128).collect();
    patched::run_step(&mut ctx, &Step::tokens(&tokens, 0, 0)).unwrap();
    ctx
}

/// A state of another plan, another model, of none under a plan and of a plan under none.
fn check_states(synth: &Synth) {
    let (dir, model) = model(synth);
    let (_dir, other) = self::model(&Synth {
        n_ff: 64,
        ..synth.clone()
    });
    let all = [
        (&model, None, "no repeated layers"),
        (&model, Some("2,4"), "repeat-layers=2,4 model="),
        (&model, Some("1,3"), "repeat-layers=1,3 model="),
        (&other, Some("2,4"), "repeat-layers=2,4 model="),
    ];
    let file = |i: usize, part: &str| dir.path().join(format!("{i} {part}"));
    let mut contexts: Vec<_> = all.iter().map(|(m, t, _)| filled(m, *t)).collect();
    let mut states = Vec::new();
    for (i, ctx) in contexts.iter_mut().enumerate() {
        ctx.save_state(file(i, "all"), &[1, 2]).unwrap();
        ctx.save_seq_state(file(i, "seq"), 0, &[3]).unwrap();
        states.push((ctx.state().unwrap(), ctx.seq_state(0).unwrap()));
    }
    let next = |ctx: &mut Context, seq| {
        let (_, logits) = patched::run_step(ctx, &Step::tokens(&[7, 8], N_FILLED, seq)).unwrap();
        logits
    };

    for (i, &(_, _, theirs)) in all.iter().enumerate() {
        for (j, &(m, text, own)) in all.iter().enumerate() {
            let ctx = &mut contexts[j];
            if i == j {
                // into a fresh context, by every way, with the same continuation
                let expected = next(&mut filled(m, text), 0);
                for way in 0..4 {
                    let mut ctx = filled(m, text);
                    ctx.clear(true).unwrap();
                    let seq = match way {
                        0 => ctx.set_state(&states[i].0).map(|()| 0).unwrap(),
                        1 => ctx
                            .load_state(file(i, "all"))
                            .map(|t| assert_eq!(t, [1, 2]))
                            .map(|()| 0)
                            .unwrap(),
                        2 => ctx.set_seq_state(1, &states[i].1).map(|()| 1).unwrap(),
                        _ => ctx
                            .load_seq_state(file(i, "seq"), 1)
                            .map(|t| assert_eq!(t, [3]))
                            .map(|()| 1)
                            .unwrap(),
                    };
                    assert!(next(&mut ctx, seq) == expected, "{text:?} by way {way}");
                }
                continue;
            }
            let results = [
                ctx.set_state(&states[i].0),
                ctx.load_state(file(i, "all")).map(drop),
                ctx.set_seq_state(0, &states[i].1),
                ctx.load_seq_state(file(i, "seq"), 0).map(drop),
            ];
            for (way, result) in results.into_iter().enumerate() {
                let reason = result.expect_err("another plan or model").to_string();
                let of = |who: &str| {
                    if way < 2 || who.contains("no") {
                        who.to_owned()
                    } else {
                        String::new()
                    }
                };
                let expected = format!("the state was saved with {}", of(theirs));
                assert!(reason.contains(&expected), "way {way}: {reason}");
                assert!(
                    reason.contains(&format!("this context has {own}")),
                    "way {way}: {reason}"
                );
            }
            assert!(ctx.state().unwrap() == states[j].0, "touched");
            assert!(ctx.seq_state(0).unwrap() == states[j].1, "touched");
        }
    }
}

#[test]
fn states_of_other_plans() {
    check_states(&Synth::new("llama"));
    check_states(&Synth::new("gemma3"));
    check_states(&Synth::new("qwen35"));
    check_states(&Synth::gemma4_e2b(3));
}
