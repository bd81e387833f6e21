//! llama.cpp as a safe library, with layers repeated at run time.
//!
//! A context made with a [`Spec`] runs some blocks of the model's layers a second time, by pointer:
//! no weight is copied, and the model's file stays as it is. The repeated passes get their own
//! KV-cache or recurrent state, so [`Context::passes`] says what the plan costs.
//!
//! ```no_run
//! use rys::{Batch, ContextParams, Model, ModelParams};
//!
//! let model = Model::load("model.gguf", ModelParams::new())?;
//! let params = ContextParams::new().n_ctx(2048).repeat_layers("10,14".parse()?);
//! let mut ctx = model.context(params)?;
//! println!("{} layers run as {}", model.n_layer(), ctx.n_layer_eff());
//!
//! let mut tokens = model.tokenize("The capital of France is", true, false)?;
//! ctx.decode(&Batch::prompt(&tokens, 0, 0))?;
//! let next = ctx.greedy(-1)?;
//! tokens.push(next);
//! println!("{}", model.detokenize(&tokens, true)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Terms
//!
//! - `src`: index of a source layer, of the model's file. Zero-based.
//! - `eff`: effective position, the index of a pass. Zero-based.
//! - plan: for every `eff` the `src` that it runs; see [`Plan`].
//! - A token is an `i32` in `0..n_vocab`; a position is an `i32` from 0 within its sequence; a
//!   sequence is an `i32` in `0..n_seq_max`.
//!
//! # Threads
//!
//! A [`Model`] is a cheap handle, `Send` and `Sync`: any number of contexts on any number of threads
//! may share it. A [`Context`] and a [`Sampler`] are `Send` but not `Sync`: one thread at a time.
//! Making and freeing models, contexts and adapters takes a lock inside this crate, because
//! llama.cpp changes the shared model there. A context keeps its model alive.
//!
//! ```compile_fail
//! fn sync<T: Sync>() {}
//! sync::<rys::Context>();
//! ```
//!
//! # Errors
//!
//! Nothing here panics on bad input, and neither a panic nor a C++ exception crosses the boundary:
//! exceptions and failed assertions become an [`Error`] with llama.cpp's text, and a panic of a
//! callback is raised again once llama.cpp has returned. One exception is documented at
//! [`Context::decode`].

#![deny(missing_docs)]

mod adapter;
mod batch;
mod context;
mod error;
mod ffi;
mod gguf;
mod header;
pub mod log;
mod memory;
mod model;
mod model_params;
mod outputs;
mod params;
mod passes;
mod sampling;
mod state;
#[cfg(feature = "server")]
pub mod tool;
mod vocab;

pub use adapter::LoraAdapter;
pub use batch::Batch;
pub use context::Context;
pub use error::{Error, Result};
pub use header::{Header, supported_archs};
pub use model::Model;
pub use model_params::ModelParams;
pub use params::{ContextParams, ContextType, FlashAttn, Pooling};
pub use passes::PassInfo;
pub use rys_plan::cost::CacheType;
pub use rys_plan::{self, Plan, PlanError, Spec, SpecError};
pub use sampling::{Sampler, SamplerBuilder, argmax};

/// Index of a token in the vocabulary, `0..n_vocab`.
pub type Token = i32;
/// Position of a token within its sequence, from 0.
pub type Pos = i32;
/// Number of a sequence, `0..n_seq_max`.
pub type SeqId = i32;
