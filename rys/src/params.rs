use std::fmt;

use llama_sys as sys;
use rys_plan::Spec;
use rys_plan::cost::CacheType;

use crate::ffi;

/// When to use flash attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "llama_flash_attn_type")]
pub enum FlashAttn {
    /// If the backend has it.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always.
    On,
}

/// What a context computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "llama_context_type")]
pub enum ContextType {
    /// The model's layers.
    #[default]
    Default,
    /// The MTP (NextN) layers, which draft tokens for another context. Never repeated: a spec has no
    /// effect on it, and the context reports the identity.
    Mtp,
}

/// How the embeddings of a sequence become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "llama_pooling_type")]
pub enum Pooling {
    /// As the model says.
    #[default]
    Model,
    /// Not at all: one embedding per token.
    None,
    /// Mean of the sequence.
    Mean,
    /// First token.
    Cls,
    /// Last token.
    Last,
    /// A ranking score.
    Rank,
}

/// How to make a context.
///
/// [`new`](Self::new) gives llama.cpp's defaults; `n_ctx(0)` is the model's own.
#[derive(Clone)]
#[doc(alias = "llama_context_params")]
pub struct ContextParams {
    pub(crate) c: sys::llama_context_params,
    pub(crate) spec: Option<Spec>,
    pub(crate) types: [CacheType; 2],
}

// SAFETY: the pointers of `c` are null; no setter changes them.
unsafe impl Send for ContextParams {}
// SAFETY: as above.
unsafe impl Sync for ContextParams {}

impl Default for ContextParams {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $field:ident = $value:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.c.$field = $value;
            self
        })*
    };
}

impl ContextParams {
    /// llama.cpp's defaults.
    #[doc(alias = "llama_context_default_params")]
    pub fn new() -> Self {
        // SAFETY: a plain getter.
        let c = unsafe { sys::llama_context_default_params() };
        Self {
            c,
            spec: None,
            types: [CacheType::F16; 2],
        }
    }

    /// Repeats layers. Without it every layer runs once and nothing differs from plain llama.cpp.
    pub fn repeat_layers(mut self, spec: Spec) -> Self {
        self.spec = Some(spec);
        self
    }

    /// Element type of the K cache. A quantized one needs a head size that its block (32 elements)
    /// divides.
    pub fn type_k(mut self, cache_type: CacheType) -> Self {
        self.types[0] = cache_type;
        self
    }

    /// Element type of the V cache. A quantized one needs flash attention too.
    pub fn type_v(mut self, cache_type: CacheType) -> Self {
        self.types[1] = cache_type;
        self
    }

    setters! {
        /// Size of the context in tokens, over all sequences; 0 is what the model was trained with.
        n_ctx: u32 => n_ctx = n_ctx;
        /// Largest batch for [`Context::decode`](crate::Context::decode), in tokens.
        n_batch: u32 => n_batch = n_batch;
        /// Tokens computed at once, 0 for `n_batch`; a larger batch is split.
        n_ubatch: u32 => n_ubatch = n_ubatch;
        /// Number of sequences, 1 to 256.
        n_seq_max: u32 => n_seq_max = n_seq_max;
        /// Threads for single tokens.
        n_threads: u32 => n_threads = i32::try_from(n_threads).unwrap_or(i32::MAX);
        /// Threads for batches of several tokens.
        n_threads_batch: u32 => n_threads_batch = i32::try_from(n_threads_batch).unwrap_or(i32::MAX);
        /// When to use flash attention.
        flash_attn: FlashAttn => flash_attn_type = match flash_attn {
            FlashAttn::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttn::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
            FlashAttn::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        };
        /// Tokens by which the recurrent state of a sequence can be rolled back with
        /// [`Context::seq_rm`](crate::Context::seq_rm); each takes a state more. 0 for models without.
        n_rs_seq: u32 => n_rs_seq = n_rs_seq;
        /// Full-size cache for layers with sliding-window attention (llama.cpp's default) instead of
        /// one of about the window's size. Needed to shift or cut such a cache.
        swa_full: bool => swa_full = swa_full;
        /// One pool of cells for all sequences instead of `n_ctx / n_seq_max` for each.
        kv_unified: bool => kv_unified = kv_unified;
        /// Keeps the KV cache on the GPU with its layers.
        offload_kqv: bool => offload_kqv = offload_kqv;
        /// Computes embeddings beside the logits; [`Context::embeddings`](crate::Context::embeddings).
        embeddings: bool => embeddings = embeddings;
        /// How the embeddings of a sequence become one.
        pooling: Pooling => pooling_type = match pooling {
            Pooling::Model => sys::LLAMA_POOLING_TYPE_UNSPECIFIED,
            Pooling::None => sys::LLAMA_POOLING_TYPE_NONE,
            Pooling::Mean => sys::LLAMA_POOLING_TYPE_MEAN,
            Pooling::Cls => sys::LLAMA_POOLING_TYPE_CLS,
            Pooling::Last => sys::LLAMA_POOLING_TYPE_LAST,
            Pooling::Rank => sys::LLAMA_POOLING_TYPE_RANK,
        };
        /// What the context computes.
        context_type: ContextType => ctx_type = match context_type {
            ContextType::Default => sys::LLAMA_CONTEXT_TYPE_DEFAULT,
            ContextType::Mtp => sys::LLAMA_CONTEXT_TYPE_MTP,
        };
        /// Base frequency of RoPE; 0 is the model's.
        rope_freq_base: f32 => rope_freq_base = rope_freq_base;
        /// Frequency factor of RoPE; 0 is the model's.
        rope_freq_scale: f32 => rope_freq_scale = rope_freq_scale;
    }

    /// The spec given to [`repeat_layers`](Self::repeat_layers).
    pub fn spec(&self) -> Option<&Spec> {
        self.spec.as_ref()
    }

    /// The C struct, without the spec. Refuses what llama.cpp asserts on instead of reporting.
    pub(crate) fn to_c(&self) -> crate::Result<sys::llama_context_params> {
        let positive = |name: &str, value: i32| {
            if value < 1 {
                return Err(crate::Error::invalid(format!(
                    "{name} is {value}; at least 1"
                )));
            }
            Ok(())
        };
        positive("n_threads", self.c.n_threads)?;
        positive("n_threads_batch", self.c.n_threads_batch)?;
        if self.c.n_batch == 0 {
            return Err(crate::Error::invalid("n_batch is 0; at least 1"));
        }
        if self.c.n_seq_max == 0 {
            return Err(crate::Error::invalid(
                "n_seq_max is 0; allowed are 1 to 256",
            ));
        }
        for (name, value) in [
            ("n_ctx", self.c.n_ctx),
            ("n_batch", self.c.n_batch),
            ("n_ubatch", self.c.n_ubatch),
        ] {
            ffi::c_len(name, value as usize)?;
        }
        let [type_k, type_v] = self.types;
        Ok(sys::llama_context_params {
            type_k: c_type(type_k)?,
            type_v: c_type(type_v)?,
            ..self.c
        })
    }
}

fn c_type(cache_type: CacheType) -> crate::Result<sys::ggml_type> {
    Ok(match cache_type {
        CacheType::F32 => sys::GGML_TYPE_F32,
        CacheType::F16 => sys::GGML_TYPE_F16,
        CacheType::Bf16 => sys::GGML_TYPE_BF16,
        CacheType::Q8_0 => sys::GGML_TYPE_Q8_0,
        CacheType::Q5_0 => sys::GGML_TYPE_Q5_0,
        CacheType::Q5_1 => sys::GGML_TYPE_Q5_1,
        CacheType::Q4_0 => sys::GGML_TYPE_Q4_0,
        CacheType::Q4_1 => sys::GGML_TYPE_Q4_1,
        CacheType::Iq4Nl => sys::GGML_TYPE_IQ4_NL,
        other => {
            return Err(crate::Error::invalid(format!(
                "cache type {other} is not supported"
            )));
        }
    })
}

impl fmt::Debug for ContextParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextParams")
            .field("spec", &self.spec)
            .field("n_ctx", &self.c.n_ctx)
            .field("n_batch", &self.c.n_batch)
            .field("n_ubatch", &self.c.n_ubatch)
            .field("n_seq_max", &self.c.n_seq_max)
            .finish_non_exhaustive()
    }
}
