use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use llama_sys as sys;

use crate::ffi::CaughtPanic;

type Progress = Box<dyn FnMut(f32) -> bool>;

/// How to load a model.
///
/// [`new`](Self::new) gives llama.cpp's defaults: all layers on a GPU if there is one, the file
/// mapped into memory.
#[derive(Default)]
pub struct ModelParams {
    n_gpu_layers: Option<u32>,
    mmap: Option<bool>,
    mlock: bool,
    pub(crate) vocab_only: bool,
    pub(crate) no_alloc: bool,
    mtp: bool,
    check_tensors: bool,
    pub(crate) progress: Option<Progress>,
}

impl ModelParams {
    /// llama.cpp's defaults.
    #[doc(alias = "llama_model_default_params")]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of source layers whose weights go to a GPU. Repeating layers does not change it: a
    /// pass runs where its source layer is.
    pub fn n_gpu_layers(mut self, n: u32) -> Self {
        self.n_gpu_layers = Some(n);
        self
    }

    /// Whether the file is mapped into memory rather than read.
    pub fn use_mmap(mut self, on: bool) -> Self {
        self.mmap = Some(on);
        self
    }

    /// Keeps the weights in RAM.
    pub fn use_mlock(mut self, on: bool) -> Self {
        self.mlock = on;
        self
    }

    /// Loads the vocabulary alone. The model can tokenize, and makes no context.
    pub fn vocab_only(mut self, on: bool) -> Self {
        self.vocab_only = on;
        self
    }

    /// Loads no weights and allocates none. Contexts of the model report the sizes that they would
    /// have ([`Context::passes`](crate::Context::passes)) and cannot decode. Recurrent memory is allocated all the same.
    pub fn no_alloc(mut self, on: bool) -> Self {
        self.no_alloc = on;
        self
    }

    /// Loads the MTP (NextN) layers too, for contexts of
    /// [`ContextType::Mtp`](crate::ContextType::Mtp).
    pub fn mtp(mut self, on: bool) -> Self {
        self.mtp = on;
        self
    }

    /// Looks for invalid values in the weights; slow.
    pub fn check_tensors(mut self, on: bool) -> Self {
        self.check_tensors = on;
        self
    }

    /// Called while loading with the fraction done, `0.0..=1.0`. Returning `false` cancels, and
    /// [`Model::load`](crate::Model::load) returns
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn progress(mut self, callback: impl FnMut(f32) -> bool + 'static) -> Self {
        self.progress = Some(Box::new(callback));
        self
    }

    pub(crate) fn to_c(&self) -> sys::llama_model_params {
        // SAFETY: a plain getter.
        let mut p = unsafe { sys::llama_model_default_params() };
        if let Some(n) = self.n_gpu_layers {
            p.n_gpu_layers = i32::try_from(n).unwrap_or(i32::MAX);
        }
        let mmap = self.mmap.unwrap_or(true);
        p.load_mode = match (mmap, self.mlock) {
            _ if self.no_alloc => sys::LLAMA_LOAD_MODE_NONE,
            (true, true) => sys::LLAMA_LOAD_MODE_MMAP_MLOCK,
            (false, true) => sys::LLAMA_LOAD_MODE_MLOCK,
            (false, false) => sys::LLAMA_LOAD_MODE_NONE,
            (true, false) if self.mmap.is_some() => sys::LLAMA_LOAD_MODE_MMAP,
            (true, false) => p.load_mode,
        };
        p.vocab_only = self.vocab_only;
        p.no_alloc = self.no_alloc;
        p.load_mtp = self.mtp;
        p.check_tensors = self.check_tensors;
        p
    }
}

impl fmt::Debug for ModelParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelParams")
            .field("n_gpu_layers", &self.n_gpu_layers)
            .field("mmap", &self.mmap)
            .field("mlock", &self.mlock)
            .field("vocab_only", &self.vocab_only)
            .field("no_alloc", &self.no_alloc)
            .field("check_tensors", &self.check_tensors)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// A progress callback during one load.
pub(crate) struct ProgressState {
    callback: Progress,
    cancelled: bool,
    panic: CaughtPanic,
}

impl ProgressState {
    pub(crate) fn new(callback: Progress) -> Self {
        Self {
            callback,
            cancelled: false,
            panic: CaughtPanic::default(),
        }
    }

    /// Sets the callback of `c`, which must not be used after `self`.
    pub(crate) fn attach(&mut self, c: &mut sys::llama_model_params) {
        c.progress_callback = Some(on_progress);
        c.progress_callback_user_data = ptr::from_mut(self).cast();
    }

    /// Whether the callback stopped the load; raises its panic again if it had one.
    pub(crate) fn cancelled(self) -> bool {
        self.panic.resume();
        self.cancelled
    }
}

unsafe extern "C" fn on_progress(done: f32, state: *mut c_void) -> bool {
    // SAFETY: `attach` passes a `ProgressState` that outlives the load and is used by it alone.
    let state = unsafe { &mut *state.cast::<ProgressState>() };
    match catch_unwind(AssertUnwindSafe(|| (state.callback)(done))) {
        Ok(go_on) => {
            state.cancelled |= !go_on;
            go_on
        }
        Err(payload) => {
            state.panic.set(payload);
            false
        }
    }
}
