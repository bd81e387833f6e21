//! A llama of six layers with random weights.

use std::sync::LazyLock;

use rys::{Batch, Context, ContextParams, Error, Model, ModelParams, Token};
use tempfile::TempDir;

use crate::writer::Writer;

pub const N_LAYER: u32 = 6;
pub const PROMPT: [Token; 8] = [1, 5, 3, 9, 2, 7, 11, 4];

pub fn file(dir: &TempDir) -> std::path::PathBuf {
    Writer::llama(N_LAYER).save(dir, "tiny.gguf")
}

/// One model for all tests.
pub fn model() -> Model {
    static MODEL: LazyLock<Model> = LazyLock::new(|| {
        let dir = TempDir::new().unwrap();
        Model::load(file(&dir), ModelParams::new().use_mmap(false)).unwrap()
    });
    MODEL.clone()
}

pub fn params() -> ContextParams {
    ContextParams::new()
        .n_ctx(256)
        .n_threads(1)
        .n_threads_batch(1)
}

/// A context with a spec, or without one for `""`.
pub fn context(spec: &str) -> Context {
    with(params(), spec)
}

pub fn with(params: ContextParams, spec: &str) -> Context {
    let params = match spec {
        "" => params,
        spec => params.repeat_layers(spec.parse().unwrap()),
    };
    model().context(params).unwrap()
}

/// Decodes [`PROMPT`] as sequence `seq` and returns the last logits.
pub fn prompt(ctx: &mut Context, seq: i32) -> Vec<f32> {
    ctx.decode(&Batch::prompt(&PROMPT, 0, seq)).unwrap();
    ctx.logits(-1).unwrap().to_vec()
}

/// Decodes one more token of a sequence and returns its logits.
pub fn step(ctx: &mut Context, token: Token, seq: i32) -> Vec<f32> {
    let pos = ctx.seq_pos_max(seq).unwrap().map_or(0, |p| p + 1);
    ctx.decode(&Batch::prompt(&[token], pos, seq)).unwrap();
    ctx.logits(-1).unwrap().to_vec()
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: rys::Result<T>, expected: &str) {
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[track_caller]
pub fn invalid<T: std::fmt::Debug>(result: rys::Result<T>, expected: &str) {
    match result.unwrap_err() {
        Error::InvalidArgument(text) => assert_eq!(text, expected),
        other => panic!("{other:?}"),
    }
}
