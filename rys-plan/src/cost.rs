//! What a plan costs: passes, KV cache and recurrent state, for a model's layers run once and run
//! by a plan. Weights cost nothing, a repeat shares its layer's.
//!
//! ```
//! use rys_plan::Spec;
//! use rys_plan::cost::{self, CacheType, ContextParams, LayerFacts};
//!
//! // 64 layers: every fourth has full attention, the others a recurrent state.
//! let attention = LayerFacts { n_embd_k: 1024, n_embd_v: 1024, ..LayerFacts::default() };
//! let recurrent = LayerFacts { is_recr: true, rs_bytes: 3 << 20, ..LayerFacts::default() };
//! let layers: Vec<_> =
//!     (0..64).map(|il| if (il + 1) % 4 == 0 { attention } else { recurrent }).collect();
//! let ctx = ContextParams {
//!     type_k: CacheType::F16,
//!     type_v: CacheType::Q8_0,
//!     n_cells: 4096,
//!     n_cells_swa: 0,
//!     n_rs_slots: 1,
//! };
//!
//! let plan = "33,34".parse::<Spec>()?.plan(64, 0)?;
//! let cost = cost::compare(&plan, &layers, &ctx)?;
//! assert_eq!((cost.base.n_kv, cost.base.n_rs), (16, 48));
//! assert_eq!((cost.plan.n_kv, cost.plan.n_rs), (16, 49)); // a state, no KV cells
//! assert_eq!((cost.extra_kv_bytes(), cost.extra_rs_bytes()), (0, 3 << 20));
//! assert_eq!(cost.rs_ratio(), Some(49.0 / 48.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::str::FromStr;

use crate::Plan;

/// What one source layer keeps in memory, as llama.cpp's `llama_layer_pass` reports it for each
/// pass of a context without a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerFacts {
    /// Sliding-window attention: its cells are those of the SWA cache.
    pub is_swa: bool,
    /// Has a recurrent state.
    pub is_recr: bool,
    /// Elements of a K row; 0 without KV cells of its own.
    pub n_embd_k: u32,
    /// Elements of a V row; 0 without KV cells of its own, or where V is part of K.
    pub n_embd_v: u32,
    /// Bytes of recurrent state for each recurrent slot; 0 without one.
    pub rs_bytes: u64,
}

impl LayerFacts {
    /// Bytes of KV cache for one pass of this layer, over all sequences.
    ///
    /// # Errors
    ///
    /// A row that is not a whole number of the cache type's blocks, or an overflow of 64 bits.
    pub fn pass_kv_bytes(&self, ctx: &ContextParams) -> Result<u64, CostError> {
        let row = ctx.type_k.row_bytes(self.n_embd_k)? + ctx.type_v.row_bytes(self.n_embd_v)?;
        let n_cells = if self.is_swa {
            ctx.n_cells_swa
        } else {
            ctx.n_cells
        };
        row.checked_mul(n_cells).ok_or(CostError::Overflow)
    }

    /// Bytes of recurrent state for one pass of this layer, over all slots.
    ///
    /// # Errors
    ///
    /// An overflow of 64 bits.
    pub fn pass_rs_bytes(&self, ctx: &ContextParams) -> Result<u64, CostError> {
        self.rs_bytes
            .checked_mul(ctx.n_rs_slots)
            .ok_or(CostError::Overflow)
    }

    fn has_kv(&self) -> bool {
        self.n_embd_k > 0 || self.n_embd_v > 0
    }
}

/// The sizes that a context gives to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextParams {
    /// Type of the K cache.
    pub type_k: CacheType,
    /// Type of the V cache.
    pub type_v: CacheType,
    /// Cells of a full-attention layer, over all streams.
    pub n_cells: u64,
    /// Cells of a sliding-window layer, over all streams.
    pub n_cells_swa: u64,
    /// Slots of a recurrent layer's state, over all sequences.
    pub n_rs_slots: u64,
}

/// The types that llama.cpp allows for a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of ggml")]
#[non_exhaustive]
pub enum CacheType {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
    Q4_1,
    Iq4Nl,
    Q5_0,
    Q5_1,
}

impl CacheType {
    /// Every type, in llama.cpp's order.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Iq4Nl,
        Self::Q5_0,
        Self::Q5_1,
    ];

    /// ggml's name, as `--cache-type-k` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Iq4Nl => "iq4_nl",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
        }
    }

    /// Elements in a block, `ggml_blck_size`.
    pub fn block_size(self) -> u32 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            _ => 32,
        }
    }

    /// Bytes in a block, `ggml_type_size`.
    pub fn block_bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
        }
    }

    /// Bytes of a row of `n_embd` elements, `ggml_row_size`.
    ///
    /// # Errors
    ///
    /// `n_embd` is not a multiple of [`block_size`](Self::block_size).
    pub fn row_bytes(self, n_embd: u32) -> Result<u64, CostError> {
        if !n_embd.is_multiple_of(self.block_size()) {
            return Err(CostError::PartialBlock {
                cache_type: self,
                n_embd,
            });
        }
        Ok(u64::from(n_embd / self.block_size()) * u64::from(self.block_bytes()))
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CacheType {
    type Err = CostError;

    fn from_str(name: &str) -> Result<Self, CostError> {
        let known = Self::ALL.into_iter().find(|t| t.name() == name);
        known.ok_or_else(|| CostError::UnknownType(name.into()))
    }
}

/// What a model's passes keep in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Passes.
    pub n_passes: u32,
    /// Passes with KV cells of their own.
    pub n_kv: u32,
    /// Passes with a recurrent state.
    pub n_rs: u32,
    /// Bytes of KV cache.
    pub kv_bytes: u64,
    /// Bytes of recurrent state.
    pub rs_bytes: u64,
}

/// The same context without and with a plan. Ratios are plan to base, `None` where the base is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comparison {
    /// Each layer once.
    pub base: Cost,
    /// The plan's passes.
    pub plan: Cost,
}

impl Comparison {
    /// Bytes of KV cache that the plan adds.
    pub fn extra_kv_bytes(&self) -> u64 {
        self.plan.kv_bytes - self.base.kv_bytes
    }

    /// Bytes of recurrent state that the plan adds.
    pub fn extra_rs_bytes(&self) -> u64 {
        self.plan.rs_bytes - self.base.rs_bytes
    }

    /// Passes, and so roughly the time for each token.
    pub fn pass_ratio(&self) -> Option<f64> {
        ratio(self.plan.n_passes.into(), self.base.n_passes.into())
    }

    /// Bytes of KV cache.
    pub fn kv_ratio(&self) -> Option<f64> {
        ratio(self.plan.kv_bytes, self.base.kv_bytes)
    }

    /// Bytes of recurrent state.
    pub fn rs_ratio(&self) -> Option<f64> {
        ratio(self.plan.rs_bytes, self.base.rs_bytes)
    }
}

fn ratio(plan: u64, base: u64) -> Option<f64> {
    (base > 0).then(|| plan as f64 / base as f64)
}

/// Costs of a context with each of `layers` once and with `plan`. `layers` is indexed by source
/// layer.
///
/// # Errors
///
/// `layers` is not `n_layer` long, a layer's rows do not fit the cache type, or a sum overflows
/// 64 bits.
pub fn compare(
    plan: &Plan,
    layers: &[LayerFacts],
    ctx: &ContextParams,
) -> Result<Comparison, CostError> {
    if layers.len() != plan.n_layer() as usize {
        return Err(CostError::LayerCount {
            given: layers.len(),
            n_layer: plan.n_layer(),
        });
    }
    let passes = plan
        .as_slice()
        .iter()
        .filter_map(|&src| layers.get(src as usize));
    Ok(Comparison {
        base: sum(layers.iter(), ctx)?,
        plan: sum(passes, ctx)?,
    })
}

fn sum<'a>(
    passes: impl Iterator<Item = &'a LayerFacts>,
    ctx: &ContextParams,
) -> Result<Cost, CostError> {
    let mut cost = Cost::default();
    for layer in passes {
        cost.n_passes += 1;
        cost.n_kv += u32::from(layer.has_kv());
        cost.n_rs += u32::from(layer.is_recr);
        let (kv, rs) = (layer.pass_kv_bytes(ctx)?, layer.pass_rs_bytes(ctx)?);
        cost.kv_bytes = cost.kv_bytes.checked_add(kv).ok_or(CostError::Overflow)?;
        cost.rs_bytes = cost.rs_bytes.checked_add(rs).ok_or(CostError::Overflow)?;
    }
    Ok(cost)
}

/// Facts or parameters that no context can have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostError {
    /// Not one entry for each layer of the plan's model.
    LayerCount {
        /// Entries given.
        given: usize,
        /// Layers of the model.
        n_layer: u32,
    },
    /// Rows of a quantized cache are made of whole blocks.
    PartialBlock {
        /// The cache's type.
        cache_type: CacheType,
        /// Elements of the row.
        n_embd: u32,
    },
    /// A name that is none of [`CacheType::ALL`].
    UnknownType(Box<str>),
    /// More bytes than 64 bits count.
    Overflow,
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LayerCount { given, n_layer } => {
                write!(
                    f,
                    "facts are given for {given} layers: the plan's model has {n_layer}"
                )
            }
            Self::PartialBlock { cache_type, n_embd } => write!(
                f,
                "a row of {n_embd} elements does not fit cache type {cache_type}: \
                 it must be a multiple of {}, choose f16 or another type",
                cache_type.block_size()
            ),
            Self::UnknownType(name) => {
                write!(
                    f,
                    "unknown cache type {}: use one of",
                    crate::excerpt::quoted(name)
                )?;
                for (i, cache_type) in CacheType::ALL.into_iter().enumerate() {
                    write!(f, "{} {cache_type}", if i > 0 { "," } else { "" })?;
                }
                Ok(())
            }
            Self::Overflow => {
                f.write_str("the memory would exceed 2^64 bytes: lower the context size")
            }
        }
    }
}

impl std::error::Error for CostError {}
