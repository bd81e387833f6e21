use std::ffi::CStr;
use std::mem::MaybeUninit;

use llama_sys as sys;
use rys_plan::Plan;
use rys_plan::cost::{self, Comparison, LayerFacts};

use crate::{Context, Error, Result};

/// One pass of a context: the layer that it runs and the memory that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "llama_layer_pass")]
pub struct PassInfo {
    /// Effective position, `0..n_layer_eff`.
    pub eff: u32,
    /// Source layer, `0..n_layer`.
    pub src: u32,
    /// Whether it attends to a sliding window.
    pub is_swa: bool,
    /// Whether it is recurrent.
    pub is_recr: bool,
    /// Width of a row of the K cache, in elements; 0 without KV cells of its own.
    pub n_embd_k: u32,
    /// Width of a row of the V cache, in elements.
    pub n_embd_v: u32,
    /// KV cells, over all sequences.
    pub n_cells: u32,
    /// KV cache of this pass, in bytes.
    pub kv_bytes: u64,
    /// Recurrent state of this pass, in bytes.
    pub rs_bytes: u64,
    /// llama.cpp's name of the buffer type that the memory is in, such as `CPU` or `CUDA0`; empty
    /// without any.
    pub buffer: String,
}

/// The passes and what they cost.
impl Context {
    /// The pass at an effective position; `None` from `n_layer_eff` on.
    #[doc(alias = "llama_layer_pass_info")]
    pub fn pass_info(&self, eff: u32) -> Option<PassInfo> {
        let mut info = MaybeUninit::<sys::llama_layer_pass>::zeroed();
        // SAFETY: the context is alive; every field of `info` may be zero.
        let info = unsafe {
            let found = sys::llama_layer_pass_info(
                self.as_ptr(),
                i32::try_from(eff).ok()?,
                info.as_mut_ptr(),
            );
            found.then(|| info.assume_init())?
        };
        let buffer = if info.buft.is_null() {
            String::new()
        } else {
            // SAFETY: NUL-terminated, valid as long as the context.
            unsafe { CStr::from_ptr(info.buft) }
                .to_string_lossy()
                .into_owned()
        };
        Some(PassInfo {
            eff,
            src: info.src.max(0).cast_unsigned(),
            is_swa: info.is_swa,
            is_recr: info.is_recr,
            n_embd_k: info.n_embd_k,
            n_embd_v: info.n_embd_v,
            n_cells: info.n_cells,
            kv_bytes: info.kv_bytes,
            rs_bytes: info.rs_bytes,
            buffer,
        })
    }

    /// All passes in the order they run.
    pub fn passes(&self) -> Vec<PassInfo> {
        (0..self.n_layer_eff())
            .filter_map(|eff| self.pass_info(eff))
            .collect()
    }

    /// KV cache of all passes, in bytes.
    pub fn kv_bytes(&self) -> u64 {
        self.passes().iter().map(|p| p.kv_bytes).sum()
    }

    /// Recurrent state of all passes, in bytes.
    pub fn rs_bytes(&self) -> u64 {
        self.passes().iter().map(|p| p.rs_bytes).sum()
    }

    /// What each source layer keeps in memory, indexed by `src`; for the cost model of `rys-plan`.
    pub fn layer_facts(&self) -> Vec<LayerFacts> {
        let mut facts = vec![LayerFacts::default(); self.model.n_layer() as usize];
        // of several passes of a layer, all alike, the last one stays
        for pass in self.passes() {
            if let Some(layer) = facts.get_mut(pass.src as usize) {
                *layer = LayerFacts {
                    is_swa: pass.is_swa,
                    is_recr: pass.is_recr,
                    n_embd_k: pass.n_embd_k,
                    n_embd_v: pass.n_embd_v,
                    rs_bytes: pass.rs_bytes / self.n_rs_slots(),
                };
            }
        }
        facts
    }

    /// The sizes of this context's memory; for the cost model of `rys-plan`.
    pub fn cost_params(&self) -> cost::ContextParams {
        let passes = self.passes();
        let cells = |is_swa: bool| {
            passes
                .iter()
                .filter(|p| p.is_swa == is_swa)
                .map(|p| u64::from(p.n_cells))
                .max()
        };
        cost::ContextParams {
            type_k: self.types[0],
            type_v: self.types[1],
            n_cells: cells(false).unwrap_or(0),
            n_cells_swa: cells(true).unwrap_or(0),
            n_rs_slots: self.n_rs_slots(),
        }
    }

    /// What this context's memory costs with its plan and would cost without.
    ///
    /// # Errors
    ///
    /// [`Error::Plan`] and [`Error::Cost`] for sizes that the cost model cannot express.
    pub fn cost(&self) -> Result<Comparison> {
        let plan = match self.plan() {
            Some(plan) => plan.clone(),
            None => Plan::identity(self.model.n_layer())?,
        };
        cost::compare(&plan, &self.layer_facts(), &self.cost_params()).map_err(Error::Cost)
    }

    /// A recurrent state for each sequence, and one more for each token of its rollback.
    fn n_rs_slots(&self) -> u64 {
        // SAFETY: the context is alive.
        let n_rs_seq = unsafe { sys::llama_n_rs_seq(self.as_ptr()) };
        u64::from(self.n_seq_max()).max(1) * (1 + u64::from(n_rs_seq))
    }
}
