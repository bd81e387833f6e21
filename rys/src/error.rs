use std::io;
use std::path::PathBuf;

/// Result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// A `reason` is llama.cpp's own text: the ERROR (or else WARN) lines that it logged on the calling thread during
/// the call, joined by `; `, or the text of the C++ exception that it threw.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file is not GGUF, is damaged, or carries values that llama.cpp cannot work with.
    #[error("{}: not a usable model file: {reason}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// llama.cpp could not load a model from a file.
    #[error("{}: cannot load the model: {reason}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// llama.cpp's text.
        reason: String,
    },
    /// The progress callback returned `false`.
    #[error("loading was cancelled by the progress callback")]
    Cancelled,
    /// A spec does not fit the model.
    #[error(transparent)]
    Plan(#[from] rys_plan::PlanError),
    /// The cost model cannot express a context's sizes.
    #[error(transparent)]
    Cost(#[from] rys_plan::cost::CostError),
    /// The model's architecture cannot repeat layers.
    #[error(
        "architecture '{arch}' cannot repeat layers; supported are {supported}. \
         run the model without a spec or use one of these"
    )]
    UnsupportedArch {
        /// `general.architecture` of the model.
        arch: String,
        /// The supported architectures, separated by commas.
        supported: String,
    },
    /// llama.cpp runs another plan than this library computed from the same spec.
    #[error(
        "llama.cpp reports the plan {reported:?} where {expected:?} was asked for; \
         the library and the linked llama.cpp do not belong together"
    )]
    PlanMismatch {
        /// Source layer of each pass, as computed here.
        expected: Vec<u32>,
        /// Source layer of each pass, as reported.
        reported: Vec<i32>,
    },
    /// llama.cpp could not create a context.
    #[error("cannot create a context: {reason}")]
    Context {
        /// llama.cpp's text.
        reason: String,
    },
    /// No room in the context for this batch. Nothing was changed: make the batch smaller, remove
    /// sequences or use a larger `n_ctx`.
    #[error("no free cells in the context for a batch of {n_tokens} tokens; n_ctx is {n_ctx}")]
    NoRoom {
        /// Tokens in the batch.
        n_tokens: usize,
        /// Tokens that fit the context.
        n_ctx: u32,
    },
    /// Decoding was stopped by the context's abort flag. The part of the batch that was computed
    /// stays in the context.
    #[error("decoding was stopped by the abort flag")]
    Aborted,
    /// llama.cpp could not decode or encode a batch.
    #[error("cannot decode the batch (code {code}): {reason}")]
    Decode {
        /// Return value of `llama_decode` or `llama_encode`.
        code: i32,
        /// llama.cpp's text.
        reason: String,
    },
    /// A saved state was refused: damaged, of another model, or of another plan.
    #[error("cannot {action} the state: {reason}")]
    State {
        /// `save` or `restore`.
        action: &'static str,
        /// llama.cpp's text.
        reason: String,
    },
    /// An adapter does not fit the model or cannot be read.
    #[error("cannot use the adapter: {reason}")]
    Adapter {
        /// llama.cpp's text.
        reason: String,
    },
    /// An argument is outside its range; the text says which, what was given and what is allowed.
    #[error("{0}")]
    InvalidArgument(String),
    /// Any other failure inside llama.cpp.
    #[error("{call}: {reason}")]
    Llama {
        /// The llama.cpp function.
        call: &'static str,
        /// llama.cpp's text.
        reason: String,
    },
}

impl Error {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::InvalidArgument(text.into())
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
