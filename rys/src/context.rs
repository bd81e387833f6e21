use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_sys as sys;
use rys_plan::Plan;
use rys_plan::cost::CacheType;

use crate::ffi::{self, call, or_unknown};
use crate::{Batch, ContextParams, Error, LoraAdapter, Model, Result, SeqId};

/// A model at work: its KV cache or recurrent state, its compute buffers and its last outputs.
///
/// `Send` and not `Sync`. It keeps its model and the adapters in use alive. The plan is fixed for
/// the context's life.
#[doc(alias = "llama_context")]
pub struct Context {
    ptr: NonNull<sys::llama_context>,
    pub(crate) model: Model,
    plan: Option<Plan>,
    pub(crate) types: [CacheType; 2],
    pub(crate) n_vocab: usize,
    pub(crate) loras: Vec<LoraAdapter>,
    abort: Option<Arc<AtomicBool>>,
    _not_sync: PhantomData<*mut ()>,
}

// SAFETY: llama.cpp ties no state of a context to a thread; it may be used by one at a time.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        let _lock = ffi::creation_lock();
        // SAFETY: the only owner; the model is still alive.
        let _ = call(|err| unsafe { sys::rys_free(self.as_ptr(), err) });
    }
}

impl Context {
    /// Makes a context on a model.
    ///
    /// With a spec, the plan is computed here first and then compared with the one that llama.cpp
    /// reports.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedArch`] and [`Error::Plan`] before anything is allocated;
    /// [`Error::Context`] with llama.cpp's text; [`Error::PlanMismatch`];
    /// [`Error::InvalidArgument`] for a parameter outside its range or a model loaded with its
    /// vocabulary only.
    #[doc(alias = "llama_init_from_model")]
    pub fn new(model: &Model, params: ContextParams) -> Result<Self> {
        if model.is_vocab_only() {
            return Err(Error::invalid(
                "the model was loaded with its vocabulary only; load it whole for a context",
            ));
        }
        let mut c = params.to_c()?;
        let mtp = c.ctx_type == sys::LLAMA_CONTEXT_TYPE_MTP;
        let plan = match &params.spec {
            Some(spec) if !mtp => Some(model.plan(spec)?),
            _ => None,
        };
        let blocks: Vec<_> = plan
            .iter()
            .flat_map(|_| params.spec.iter())
            .flat_map(c_blocks)
            .collect();
        c.repeat_layers = if blocks.is_empty() {
            ptr::null()
        } else {
            blocks.as_ptr()
        };
        c.n_repeat_layers = blocks.len();

        let mut out = ptr::null_mut();
        let locks = (model.read_adapters(), ffi::creation_lock());
        // SAFETY: the model is alive; the blocks are read during the call only.
        let done =
            call(|err| unsafe { sys::rys_init_from_model(model.as_ptr(), c, &mut out, err) });
        drop(locks);
        let (Ok(reason) | Err(reason)) = done;
        let ptr = NonNull::new(out).ok_or(Error::Context {
            reason: or_unknown(reason),
        })?;
        let ctx = Self {
            ptr,
            model: model.clone(),
            plan,
            types: params.types,
            n_vocab: model.n_vocab(),
            loras: Vec::new(),
            abort: None,
            _not_sync: PhantomData,
        };
        ctx.compare_plans()?;
        Ok(ctx)
    }

    fn compare_plans(&self) -> Result<()> {
        let expected: Vec<u32> = match &self.plan {
            Some(plan) => plan.as_slice().to_vec(),
            None => (0..self.model.n_layer()).collect(),
        };
        let reported = self.reported_plan();
        let same = expected
            .iter()
            .map(|&e| i64::from(e))
            .eq(reported.iter().map(|&r| i64::from(r)));
        if !same {
            return Err(Error::PlanMismatch {
                expected,
                reported: reported.to_vec(),
            });
        }
        Ok(())
    }

    /// The C object, for calls that this crate does not cover. Owned by this context.
    pub fn as_ptr(&self) -> *mut sys::llama_context {
        self.ptr.as_ptr()
    }

    /// The model.
    #[doc(alias = "llama_get_model")]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The plan, if layers are repeated.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Number of passes: source layers plus repeats.
    #[doc(alias = "llama_n_layer_eff")]
    pub fn n_layer_eff(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_layer_eff(self.as_ptr()) }
            .max(0)
            .cast_unsigned()
    }

    /// Source layer of every pass, as llama.cpp reports it: the identity without a plan.
    #[doc(alias = "llama_layer_plan")]
    pub fn reported_plan(&self) -> &[i32] {
        let n = self.n_layer_eff() as usize;
        if n == 0 {
            // a model of MTP layers only; C's pointer may be null then
            return &[];
        }
        // SAFETY: not null, with `n_layer_eff` values, valid as long as the context.
        unsafe { slice::from_raw_parts(sys::llama_layer_plan(self.as_ptr()), n) }
    }

    /// Size of the context in tokens, over all sequences; rounded up by llama.cpp.
    #[doc(alias = "llama_n_ctx")]
    pub fn n_ctx(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_ctx(self.as_ptr()) }
    }

    /// Tokens that one sequence can hold.
    #[doc(alias = "llama_n_ctx_seq")]
    pub fn n_ctx_seq(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_ctx_seq(self.as_ptr()) }
    }

    /// Largest batch for [`decode`](Self::decode), in tokens.
    #[doc(alias = "llama_n_batch")]
    pub fn n_batch(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_batch(self.as_ptr()) }
    }

    /// Tokens computed at once.
    #[doc(alias = "llama_n_ubatch")]
    pub fn n_ubatch(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_ubatch(self.as_ptr()) }
    }

    /// Number of sequences.
    #[doc(alias = "llama_n_seq_max")]
    pub fn n_seq_max(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_seq_max(self.as_ptr()) }
    }

    /// Sets the numbers of threads, for single tokens and for batches; both at least 1.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for 0.
    #[doc(alias = "llama_set_n_threads")]
    pub fn set_n_threads(&mut self, single: u32, batch: u32) -> Result<()> {
        let c = |n: u32| match i32::try_from(n) {
            Ok(n @ 1..) => Ok(n),
            _ => Err(Error::invalid(format!(
                "{n} threads; allowed are 1 to {}",
                i32::MAX
            ))),
        };
        let (single, batch) = (c(single)?, c(batch)?);
        // SAFETY: the context is alive.
        unsafe { sys::llama_set_n_threads(self.as_ptr(), single, batch) };
        Ok(())
    }

    /// Whether a token attends to earlier tokens only, as it does in a fresh context of a generating
    /// model.
    #[doc(alias = "llama_set_causal_attn")]
    pub fn set_causal_attn(&mut self, on: bool) {
        // SAFETY: the context is alive.
        unsafe { sys::llama_set_causal_attn(self.as_ptr(), on) };
    }

    /// Stops a running [`decode`](Self::decode) when the flag becomes true; it then returns
    /// [`Error::Aborted`]. CPU only. `None` removes the flag.
    #[doc(alias = "llama_set_abort_callback")]
    pub fn set_abort_flag(&mut self, flag: Option<Arc<AtomicBool>>) {
        let (callback, data): (sys::ggml_abort_callback, *mut c_void) = match &flag {
            Some(flag) => (Some(on_abort), Arc::as_ptr(flag).cast_mut().cast()),
            None => (None, ptr::null_mut()),
        };
        // SAFETY: the flag lives in `self.abort` until it is replaced here.
        unsafe { sys::llama_set_abort_callback(self.as_ptr(), callback, data) };
        self.abort = flag;
    }

    /// Computes a batch and adds it to the context. Positions must continue those of each sequence.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a batch that is empty or larger than `n_batch`, for a token,
    /// position or sequence outside its range, and on a model without weights; nothing is changed.
    /// [`Error::NoRoom`]; nothing is changed. [`Error::Aborted`]. [`Error::Decode`] with llama.cpp's
    /// text; for codes below -1 a part of the batch may remain in the context.
    ///
    /// # Aborts
    ///
    /// An assertion inside llama.cpp that fails *while computing* ends the process: it happens on
    /// several threads, where nothing can catch it. What this method checks is meant to rule it out.
    #[doc(alias = "llama_decode")]
    pub fn decode(&mut self, batch: &Batch) -> Result<()> {
        let whole_in_one = !self.has_memory() || !self.is_causal();
        self.check_batch(batch, whole_in_one)?;
        let ptr = self.as_ptr();
        self.run(batch, |c, ret, err| {
            // SAFETY: the context is alive and used by nobody else; the batch was checked.
            unsafe { sys::rys_decode(ptr, c, ret, err) }
        })
    }

    /// Runs the encoder of an encoder-decoder model, or an embedding model, over a batch of at most
    /// `n_ubatch` tokens.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode), and [`Error::InvalidArgument`] for a model that only decodes.
    #[doc(alias = "llama_encode")]
    pub fn encode(&mut self, batch: &Batch) -> Result<()> {
        if !self.model.has_encoder() && self.has_memory() {
            return Err(Error::invalid(
                "the model has no encoder; decode the batch instead",
            ));
        }
        self.check_batch(batch, true)?;
        let ptr = self.as_ptr();
        self.run(batch, |c, ret, err| {
            // SAFETY: the context is alive and used by nobody else; the batch was checked.
            unsafe { sys::rys_encode(ptr, c, ret, err) }
        })
    }

    fn run(
        &mut self,
        batch: &Batch,
        f: impl FnOnce(sys::llama_batch, *mut i32, *mut sys::rys_error) -> i32,
    ) -> Result<()> {
        let mut code = 0;
        let lock = self.model.read_adapters();
        let done = batch.with_c(|c| call(|err| f(c, &mut code, err)));
        drop(lock);
        match (done, code) {
            (Ok(_), 0) => Ok(()),
            (Ok(_), 1) => Err(Error::NoRoom {
                n_tokens: batch.len(),
                n_ctx: self.n_ctx(),
            }),
            (Ok(_), 2) => Err(Error::Aborted),
            (Ok(reason), code) => Err(Error::Decode {
                code,
                reason: or_unknown(reason),
            }),
            (Err(reason), _) => Err(Error::Decode { code: -3, reason }),
        }
    }

    /// What llama.cpp asserts on or does not check.
    fn check_batch(&self, batch: &Batch, whole_in_one: bool) -> Result<()> {
        self.require_weights()?;
        let (limit, name) = if whole_in_one && self.n_ubatch() < self.n_batch() {
            (self.n_ubatch(), "n_ubatch")
        } else {
            (self.n_batch(), "n_batch")
        };
        if batch.is_empty() || batch.len() > limit as usize {
            return Err(Error::invalid(format!(
                "a batch of {} tokens; allowed are 1 to {limit} ({name})",
                batch.len()
            )));
        }
        for &token in &batch.tokens {
            if !usize::try_from(token).is_ok_and(|t| t < self.n_vocab) {
                return Err(Error::invalid(format!(
                    "token {token} is not in the vocabulary; allowed are 0..{}",
                    self.n_vocab
                )));
            }
        }
        if let Some(pos) = batch.pos.iter().find(|&&p| !(0..i32::MAX).contains(&p)) {
            return Err(Error::invalid(format!(
                "position {pos}; allowed are 0..{}",
                i32::MAX
            )));
        }
        if batch.has_token_without_seq() {
            return Err(Error::invalid(
                "a token of the batch belongs to no sequence",
            ));
        }
        batch.seqs.iter().try_for_each(|&s| self.require_seq(s))
    }

    pub(crate) fn require_weights(&self) -> Result<()> {
        if self.model.is_no_alloc() {
            return Err(Error::invalid(
                "the model was loaded without weights; load it whole to compute with it",
            ));
        }
        Ok(())
    }

    pub(crate) fn require_seq(&self, seq: SeqId) -> Result<()> {
        let n = self.n_seq_max();
        if u32::try_from(seq).is_ok_and(|s| s < n) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "sequence {seq}; allowed are 0..{n} (n_seq_max)"
        )))
    }

    fn is_causal(&self) -> bool {
        // SAFETY: the context is alive.
        unsafe { sys::llama_get_causal_attn(self.as_ptr()) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("model", &self.model)
            .field("n_ctx", &self.n_ctx())
            .field("n_layer_eff", &self.n_layer_eff())
            .finish_non_exhaustive()
    }
}

fn c_blocks(spec: &rys_plan::Spec) -> impl Iterator<Item = sys::llama_layer_block> {
    // a spec that expanded has ends up to `n_layer`, which is at most 512
    spec.blocks().iter().map(|b| sys::llama_layer_block {
        start: b.start().cast_signed(),
        end: b.end().cast_signed(),
    })
}

unsafe extern "C" fn on_abort(flag: *mut c_void) -> bool {
    // SAFETY: `set_abort_flag` passes an `AtomicBool` that the context keeps alive.
    unsafe { &*flag.cast::<AtomicBool>() }.load(Ordering::Relaxed)
}
