//! Contexts with and without a plan, and the batches they take.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rys::{Batch, CacheType, ContextType, Error, FlashAttn, Pooling, argmax};

use crate::tiny::{N_LAYER, PROMPT, context, invalid, model, params, prompt, refused, step, with};
use crate::writer::{N_EMBD, N_VOCAB};

#[test]
fn every_block_runs_and_is_reported() {
    let base = prompt(&mut context(""), 0);
    assert_eq!(base.len(), N_VOCAB as usize);
    assert!(base.iter().all(|x| x.is_finite()));
    for start in 0..N_LAYER {
        for end in start + 1..=N_LAYER {
            let spec = format!("{start},{end}");
            let mut ctx = context(&spec);
            let plan: Vec<i32> = (0..end)
                .chain(start..end)
                .chain(end..N_LAYER)
                .map(|l| l as i32)
                .collect();
            assert_eq!(ctx.reported_plan(), plan, "{spec}");
            assert_eq!(ctx.n_layer_eff(), N_LAYER + end - start);
            let logits = prompt(&mut ctx, 0);
            assert!(logits.iter().all(|x| x.is_finite()), "{spec}");
            assert_ne!(logits, base, "{spec}");
            assert_eq!(logits, prompt(&mut context(&spec), 0), "{spec}");
        }
    }
}

#[test]
fn without_a_spec_the_plan_is_the_identity() {
    let ctx = context("");
    assert!(ctx.plan().is_none());
    assert_eq!(ctx.reported_plan(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn passes_say_what_they_cost() {
    let ctx = context("2,4");
    let row = N_EMBD as u64 * 2; // f16
    for (eff, src) in [0, 1, 2, 3, 2, 3, 4, 5].into_iter().enumerate() {
        let pass = ctx.pass_info(eff as u32).unwrap();
        assert_eq!((pass.eff, pass.src, pass.n_cells), (eff as u32, src, 256));
        assert_eq!(
            (pass.n_embd_k, pass.n_embd_v),
            (N_EMBD as u32, N_EMBD as u32)
        );
        assert_eq!((pass.kv_bytes, pass.rs_bytes), (256 * 2 * row, 0));
        assert!(!pass.is_swa && !pass.is_recr && !pass.buffer.is_empty());
    }
    assert!(ctx.pass_info(8).is_none());
    assert!(ctx.pass_info(u32::MAX).is_none());
}

#[test]
fn the_cost_model_agrees_with_llama_cpp() {
    let types = [CacheType::F32, CacheType::F16, CacheType::Bf16];
    for (k, v) in types.into_iter().flat_map(|k| types.map(|v| (k, v))) {
        let params = || params().type_k(k).type_v(v).n_seq_max(2).kv_unified(false);
        let (base, plan) = (with(params(), ""), with(params(), "1,4"));
        let cost = plan.cost().unwrap();
        assert_eq!(
            (cost.base.kv_bytes, cost.plan.kv_bytes),
            (base.kv_bytes(), plan.kv_bytes())
        );
        assert_eq!(cost.base, base.cost().unwrap().plan);
        assert_eq!((cost.base.n_passes, cost.plan.n_passes), (6, 9));
    }
}

#[test]
fn a_spec_that_does_not_fit_is_refused_before_the_context_is_made() {
    let error = model()
        .context(params().repeat_layers("3,7".parse().unwrap()))
        .unwrap_err();
    assert!(matches!(error, Error::Plan(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        model()
            .plan(&"3,7".parse().unwrap())
            .unwrap_err()
            .to_string()
    );
}

#[test]
fn parameters_outside_their_range_are_refused() {
    invalid(
        model().context(params().n_threads(0)),
        "n_threads is 0; at least 1",
    );
    invalid(
        model().context(params().n_batch(0)),
        "n_batch is 0; at least 1",
    );
    invalid(
        model().context(params().n_seq_max(0)),
        "n_seq_max is 0; allowed are 1 to 256",
    );
    invalid(
        model().context(params().n_ctx(u32::MAX)),
        "n_ctx: 4294967295 is above the maximum of 2147483647",
    );
    refused(
        model().context(params().n_seq_max(257)),
        "cannot create a context: llama_init_from_model: failed to initialize the context: \
         n_seq_max must be <= 256",
    );
    refused(
        model().context(params().type_v(CacheType::Q8_0).flash_attn(FlashAttn::Off)),
        "cannot create a context: llama_init_from_model: quantized V cache requires flash_attn to \
         be enabled",
    );
    refused(
        model().context(params().context_type(ContextType::Mtp)),
        "cannot create a context: llama_init_from_model: context type MTP requested but model \
         doesn't contain MTP layers",
    );
}

#[test]
fn batches_outside_their_range_are_refused_and_change_nothing() {
    let mut ctx = context("2,4");
    let before = prompt(&mut ctx, 0);
    let state = ctx.state().unwrap();
    let mut one = |token, pos, seqs: &[i32], expected: &str| {
        let mut batch = Batch::new();
        batch.add(token, pos, seqs, true);
        invalid(ctx.decode(&batch), expected);
    };
    one(
        -1,
        8,
        &[0],
        "token -1 is not in the vocabulary; allowed are 0..16",
    );
    one(
        16,
        8,
        &[0],
        "token 16 is not in the vocabulary; allowed are 0..16",
    );
    one(1, -1, &[0], "position -1; allowed are 0..2147483647");
    one(
        1,
        i32::MAX,
        &[0],
        "position 2147483647; allowed are 0..2147483647",
    );
    one(1, 8, &[1], "sequence 1; allowed are 0..1 (n_seq_max)");
    one(1, 8, &[-1], "sequence -1; allowed are 0..1 (n_seq_max)");
    one(1, 8, &[], "a token of the batch belongs to no sequence");
    invalid(
        ctx.decode(&Batch::new()),
        "a batch of 0 tokens; allowed are 1 to 256 (n_batch)",
    );
    invalid(
        ctx.decode(&Batch::prompt(&[1; 257], 8, 0)),
        "a batch of 257 tokens; allowed are 1 to 256 (n_batch)",
    );
    invalid(
        ctx.encode(&Batch::prompt(&PROMPT, 0, 0)),
        "the model has no encoder; decode the batch instead",
    );
    let gap = ctx.decode(&Batch::prompt(&[1], 20, 0)).unwrap_err();
    assert!(matches!(gap, Error::Decode { code: -1, .. }), "{gap:?}");
    assert!(
        gap.to_string().contains("inconsistent sequence positions"),
        "{gap}"
    );
    assert_eq!(ctx.logits(-1).unwrap(), before);
    assert!(ctx.state().unwrap() == state);
}

#[test]
fn a_full_context_has_no_room() {
    let mut ctx = context("2,4");
    ctx.decode(&Batch::prompt(&[1; 256], 0, 0)).unwrap();
    refused(
        ctx.decode(&Batch::prompt(&[1], 256, 0)),
        "no free cells in the context for a batch of 1 tokens; n_ctx is 256",
    );
    assert_eq!(ctx.seq_pos_max(0).unwrap(), Some(255));
    assert!(ctx.seq_rm(0, 200..).unwrap());
    step(&mut ctx, 1, 0);
}

#[test]
fn an_abort_flag_stops_decoding() {
    let mut ctx = context("2,4");
    ctx.set_abort_flag(Some(Arc::new(AtomicBool::new(true))));
    refused(
        ctx.decode(&Batch::prompt(&PROMPT, 0, 0)),
        "decoding was stopped by the abort flag",
    );
    ctx.set_abort_flag(None);
    ctx.clear(true).unwrap();
    assert_eq!(prompt(&mut ctx, 0), prompt(&mut context("2,4"), 0));
}

#[test]
fn outputs_that_were_not_asked_for_are_errors() {
    let mut ctx = context("");
    ctx.logits(-1).unwrap_err();
    prompt(&mut ctx, 0);
    ctx.logits(7).unwrap();
    refused(
        ctx.logits(0),
        "llama_get_logits_ith: get_logits_ith: invalid logits id 0, reason: \
         batch.logits[0] != true",
    );
    ctx.logits(8).unwrap_err();
    ctx.logits(-2).unwrap_err();
    ctx.embeddings(-1).unwrap_err();
    refused(
        ctx.embeddings_seq(0),
        "llama_get_embeddings_seq: nothing is pooled, or the sequence was not in the last batch",
    );
}

#[test]
fn one_batch_gives_an_output_for_every_token() {
    let mut ctx = context("2,4");
    ctx.decode(&Batch::all_outputs(&PROMPT, 0, 0)).unwrap();
    let all: Vec<Vec<f32>> = (0..8).map(|i| ctx.logits(i).unwrap().to_vec()).collect();
    assert_eq!(ctx.greedy(3).unwrap(), argmax(&all[3]));
    assert_eq!(ctx.logits(-1).unwrap(), all[7]);
}

#[test]
fn embeddings_have_the_models_width() {
    let mut ctx = with(params().embeddings(true).pooling(Pooling::None), "2,4");
    ctx.decode(&Batch::all_outputs(&PROMPT, 0, 0)).unwrap();
    assert_eq!(ctx.embeddings(3).unwrap().len(), N_EMBD as usize);

    let mut ctx = with(params().embeddings(true).pooling(Pooling::Mean), "2,4");
    ctx.decode(&Batch::all_outputs(&PROMPT, 0, 0)).unwrap();
    let pooled = ctx.embeddings_seq(0).unwrap();
    assert_eq!(pooled.len(), N_EMBD as usize);
    assert!(pooled.iter().all(|x| x.is_finite()));
}

#[test]
fn a_batch_that_must_be_computed_at_once_fits_n_ubatch() {
    let mut ctx = with(params().n_ubatch(4), "");
    prompt(&mut ctx, 0);
    ctx.clear(false).unwrap();
    ctx.set_causal_attn(false);
    invalid(
        ctx.decode(&Batch::prompt(&PROMPT, 0, 0)),
        "a batch of 8 tokens; allowed are 1 to 4 (n_ubatch)",
    );
}

#[test]
fn threads_can_be_changed() {
    let mut ctx = context("");
    ctx.set_n_threads(1, 2).unwrap();
    invalid(
        ctx.set_n_threads(1, 0),
        "0 threads; allowed are 1 to 2147483647",
    );
}
