//! Loading: progress, parts of a model, handles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use rys::{Error, Model, ModelParams};
use tempfile::TempDir;

use crate::tiny::{N_LAYER, context, file, invalid, params, prompt, refused};
use crate::writer::{N_EMBD, N_VOCAB, Writer};

#[test]
fn progress_rises_to_one() {
    let dir = TempDir::new().unwrap();
    let progress = Arc::<Mutex<Vec<f32>>>::default();
    let sink = progress.clone();
    Model::load(
        file(&dir),
        ModelParams::new().progress(move |f| {
            sink.lock().unwrap().push(f);
            true
        }),
    )
    .unwrap();
    let seen = progress.lock().unwrap();
    assert!(seen.is_sorted() && seen.last() == Some(&1.0), "{seen:?}");
}

#[test]
fn progress_can_cancel() {
    let dir = TempDir::new().unwrap();
    let cancelled = Model::load(file(&dir), ModelParams::new().progress(|_| false));
    refused(cancelled, "loading was cancelled by the progress callback");
}

#[test]
fn a_panic_of_the_callback_arrives_at_the_caller() {
    let dir = TempDir::new().unwrap();
    let params = ModelParams::new().progress(|_| std::panic::resume_unwind(Box::new("mine")));
    let payload = catch_unwind(AssertUnwindSafe(|| Model::load(file(&dir), params))).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"mine"));
}

#[test]
fn facts_of_the_model() {
    let dir = TempDir::new().unwrap();
    let model = Model::load(file(&dir), ModelParams::new()).unwrap();
    assert_eq!(
        (model.arch(), model.n_layer(), model.n_layer_nextn()),
        ("llama", N_LAYER, 0)
    );
    assert_eq!(
        (model.n_embd(), model.n_vocab()),
        (N_EMBD as usize, N_VOCAB as usize)
    );
    assert_eq!(model.n_ctx_train(), 1024);
    assert_eq!(model.size_bytes(), 4 * model.n_params());
    assert!(!model.has_encoder() && !model.is_recurrent() && !model.is_hybrid());
    assert_eq!(
        model.meta("llama.block_count").unwrap().as_deref(),
        Some("6")
    );
    assert_eq!(model.meta("absent").unwrap(), None);
    model.meta("a\0b").unwrap_err();
    assert_eq!(model.chat_template(), None);
    model
        .chat_prompt(None, &[("user", "hello")], true)
        .unwrap_err();
    assert_eq!(
        model
            .chat_prompt(Some("chatml"), &[("user", "hello")], true)
            .unwrap(),
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn a_long_metadata_value_is_whole() {
    let dir = TempDir::new().unwrap();
    let w = Writer::llama(2);
    let text = "x".repeat(10_000);
    w.str("general.description", &text);
    let model = Model::load(w.save(&dir, "model.gguf"), ModelParams::new()).unwrap();
    assert_eq!(model.meta("general.description").unwrap(), Some(text));
}

#[test]
fn a_model_without_a_vocabulary_has_no_text() {
    let model = crate::tiny::model();
    let expected = "the model has no vocabulary; work with token numbers";
    invalid(model.tokenize("hello", true, true), expected);
    invalid(model.detokenize(&[1], true), expected);
    invalid(model.token_bytes(1, true), expected);
    assert!(!model.is_eog(1));
}

#[test]
fn a_model_without_weights_gives_sizes_only() {
    let dir = TempDir::new().unwrap();
    let model = Model::load(file(&dir), ModelParams::new().no_alloc(true)).unwrap();
    let mut ctx = model
        .context(params().repeat_layers("2,4".parse().unwrap()))
        .unwrap();
    assert_eq!(ctx.passes(), context("2,4").passes());
    let expected = "the model was loaded without weights; load it whole to compute with it";
    invalid(ctx.decode(&rys::Batch::prompt(&[1], 0, 0)), expected);
    invalid(ctx.state(), expected);
    invalid(ctx.set_state(&[0; 64]), expected);
    invalid(ctx.set_seq_state(0, &[0; 64]), expected);
}

#[test]
fn a_vocabulary_alone_makes_no_context() {
    let dir = TempDir::new().unwrap();
    let model = Model::load(file(&dir), ModelParams::new().vocab_only(true)).unwrap();
    assert!(model.is_vocab_only());
    invalid(
        model.context(params()),
        "the model was loaded with its vocabulary only; load it whole for a context",
    );
}

#[test]
fn a_missing_tensor_is_named() {
    let dir = TempDir::new().unwrap();
    let w = Writer::llama(2);
    w.u32("llama.block_count", 3);
    let error = Model::load(w.save(&dir, "model.gguf"), ModelParams::new()).unwrap_err();
    assert!(matches!(error, Error::Load { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("tensor 'blk.2.attn_norm.weight' not found"),
        "{error}"
    );
}

#[test]
fn other_architectures_are_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let w = Writer::empty();
    w.str("general.architecture", "mpt");
    w.u32("mpt.block_count", 6);
    let header = rys::Header::read(w.save(&dir, "mpt.gguf")).unwrap();
    let error = header.plan(&"2,4".parse().unwrap()).unwrap_err();
    let supported = rys::supported_archs();
    assert!(supported.iter().any(|a| a == "llama"), "{supported:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "architecture 'mpt' cannot repeat layers; supported are {}. \
             run the model without a spec or use one of these",
            supported.join(", ")
        )
    );
}

#[test]
fn a_context_outlives_the_handle_it_was_made_from() {
    let dir = TempDir::new().unwrap();
    let mut ctx = {
        let model = Model::load(file(&dir), ModelParams::new()).unwrap();
        model.context(params()).unwrap()
    };
    assert_eq!(prompt(&mut ctx, 0), prompt(&mut context(""), 0));
}
