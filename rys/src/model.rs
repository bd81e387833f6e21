use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use llama_sys as sys;
use rys_plan::{Plan, Spec};

use crate::ffi::{self, call, or_unknown};
use crate::gguf::Gguf;
use crate::model_params::{ModelParams, ProgressState};
use crate::{Context, ContextParams, Error, Header, Result, header};

/// A model: weights and vocabulary. A cheap handle; the model is freed with its last handle, context
/// and adapter.
///
/// `Send` and `Sync`: llama.cpp only reads a loaded model, and this crate locks the moments where
/// it does not.
#[derive(Clone)]
#[doc(alias = "llama_model")]
pub struct Model(Arc<Inner>);

struct Inner {
    ptr: NonNull<sys::llama_model>,
    arch: String,
    vocab_only: bool,
    no_alloc: bool,
    /// Over llama.cpp's list of the adapters loaded for the model.
    adapters: RwLock<()>,
}

// SAFETY: a loaded model is only read, from any thread; what changes it happens under
// `ffi::creation_lock` (making and freeing contexts) or `adapters` (making and freeing adapters).
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let _lock = ffi::creation_lock();
        // SAFETY: the last owner; contexts and adapters hold an `Arc` of this.
        let _ = call(|err| unsafe { sys::rys_model_free(self.ptr.as_ptr(), err) });
    }
}

impl Model {
    /// Loads a GGUF file, or the first file of a split model.
    ///
    /// The file's header is read and checked first; an assertion of llama.cpp's loader that fails all
    /// the same is an error too.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::Header`] as for [`Header::read`]; [`Error::Load`] with llama.cpp's
    /// text; [`Error::Cancelled`].
    ///
    /// # Panics
    ///
    /// With the payload of the progress callback, if that panics.
    #[doc(alias = "llama_model_load_from_file")]
    pub fn load(path: impl AsRef<Path>, mut params: ModelParams) -> Result<Self> {
        let path = path.as_ref();
        if params.vocab_only {
            header::check_tokens(&Gguf::open(path)?)?;
        } else {
            Header::read(path)?;
        }
        let c_path = ffi::c_path(path)?;
        let mut c = params.to_c();
        let mut progress = params.progress.take().map(ProgressState::new);
        if let Some(state) = &mut progress {
            state.attach(&mut c);
        }

        let mut out = ptr::null_mut();
        // SAFETY: the path is NUL-terminated, `c` holds pointers that outlive the call.
        let done =
            call(|err| unsafe { sys::rys_model_load_from_file(c_path.as_ptr(), c, &mut out, err) });

        let made = NonNull::new(out).map(|ptr| {
            // SAFETY: a model that llama.cpp has just made, with no other owner.
            unsafe { Self::wrap(ptr, params.vocab_only, params.no_alloc) }
        });
        if progress.is_some_and(ProgressState::cancelled) {
            return Err(Error::Cancelled);
        }
        match (done, made) {
            (Ok(_), Some(model)) => Ok(model),
            (Ok(reason) | Err(reason), _) => Err(Error::Load {
                path: PathBuf::from(path),
                reason: or_unknown(reason),
            }),
        }
    }

    /// Takes over a model made through `llama-sys`, such as one of `rys_model_init_from_user`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a null pointer.
    ///
    /// # Safety
    ///
    /// `ptr` is null or a complete model that nothing else uses or frees, loaded with weights.
    pub unsafe fn from_raw(ptr: *mut sys::llama_model) -> Result<Self> {
        ffi::init()?;
        let ptr = NonNull::new(ptr).ok_or_else(|| Error::invalid("the model is null"))?;
        // SAFETY: the caller's promise.
        Ok(unsafe { Self::wrap(ptr, false, false) })
    }

    /// # Safety
    ///
    /// As for [`from_raw`](Self::from_raw); the flags are those that it was loaded with.
    unsafe fn wrap(ptr: NonNull<sys::llama_model>, vocab_only: bool, no_alloc: bool) -> Self {
        let arch = meta(ptr.as_ptr(), c"general.architecture").unwrap_or_default();
        Self(Arc::new(Inner {
            ptr,
            arch,
            vocab_only,
            no_alloc,
            adapters: RwLock::new(()),
        }))
    }

    /// Held while a context is made or computes: either may size its graphs, by the list of the
    /// adapters loaded for the model.
    pub(crate) fn read_adapters(&self) -> RwLockReadGuard<'_, ()> {
        let adapters = &self.0.adapters;
        adapters.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while that list is changed.
    pub(crate) fn write_adapters(&self) -> RwLockWriteGuard<'_, ()> {
        let adapters = &self.0.adapters;
        adapters.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The C object, for calls that this crate does not cover. Owned by this handle.
    pub fn as_ptr(&self) -> *mut sys::llama_model {
        self.0.ptr.as_ptr()
    }

    /// Makes a context. Short for [`Context::new`].
    ///
    /// # Errors
    ///
    /// See [`Context::new`].
    pub fn context(&self, params: ContextParams) -> Result<Context> {
        Context::new(self, params)
    }

    /// Whether the model was loaded without its weights ([`ModelParams::no_alloc`]).
    pub fn is_no_alloc(&self) -> bool {
        self.0.no_alloc
    }

    /// Whether only the vocabulary was loaded ([`ModelParams::vocab_only`]).
    pub fn is_vocab_only(&self) -> bool {
        self.0.vocab_only
    }

    /// `general.architecture`, such as `llama`.
    pub fn arch(&self) -> &str {
        &self.0.arch
    }

    /// Source layers, without the MTP (NextN) layers; 0 for a model of its vocabulary alone.
    #[doc(alias = "llama_model_n_layer")]
    pub fn n_layer(&self) -> u32 {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_layer(self.as_ptr()) }
            .max(0)
            .cast_unsigned()
    }

    /// MTP (NextN) layers, which follow the others and are never repeated.
    #[doc(alias = "llama_model_n_layer_nextn")]
    pub fn n_layer_nextn(&self) -> u32 {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_layer_nextn(self.as_ptr()) }
            .max(0)
            .cast_unsigned()
    }

    /// Width of the hidden state, in elements.
    #[doc(alias = "llama_model_n_embd")]
    pub fn n_embd(&self) -> usize {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_embd(self.as_ptr()) }.max(0) as usize
    }

    /// Width of a head's K, in elements; of the first layer, if they differ.
    pub(crate) fn n_embd_head_k(&self) -> usize {
        let key = format!("{}.attention.key_length", self.arch());
        let given = self.meta(&key).ok().flatten().and_then(|n| n.parse().ok());
        // SAFETY: the model is alive.
        let n_head = unsafe { sys::llama_model_n_head(self.as_ptr()) };
        given.unwrap_or_else(|| self.n_embd() / n_head.max(1) as usize)
    }

    /// Width of an output embedding, in elements.
    #[doc(alias = "llama_model_n_embd_out")]
    pub fn n_embd_out(&self) -> usize {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_embd_out(self.as_ptr()) }.max(0) as usize
    }

    /// Context that the model was trained with, in tokens.
    #[doc(alias = "llama_model_n_ctx_train")]
    pub fn n_ctx_train(&self) -> u32 {
        // a context with a RoPE scaling of its own changes it
        let _lock = ffi::creation_lock();
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_ctx_train(self.as_ptr()) }
            .max(0)
            .cast_unsigned()
    }

    /// Weights, all tensors together, in bytes. The same with and without a plan.
    #[doc(alias = "llama_model_size")]
    pub fn size_bytes(&self) -> u64 {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_size(self.as_ptr()) }
    }

    /// Number of weights.
    #[doc(alias = "llama_model_n_params")]
    pub fn n_params(&self) -> u64 {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_params(self.as_ptr()) }
    }

    /// Whether the model has an encoder, which [`Context::encode`] runs.
    #[doc(alias = "llama_model_has_encoder")]
    pub fn has_encoder(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_has_encoder(self.as_ptr()) }
    }

    /// Whether every layer is recurrent (Mamba, RWKV).
    #[doc(alias = "llama_model_is_recurrent")]
    pub fn is_recurrent(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_is_recurrent(self.as_ptr()) }
    }

    /// Whether some layers are recurrent and some attend (Qwen3.5, Jamba).
    #[doc(alias = "llama_model_is_hybrid")]
    pub fn is_hybrid(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_is_hybrid(self.as_ptr()) }
    }

    /// A metadata value of the file as text; `None` for an absent key and for an array.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a key with a NUL byte.
    #[doc(alias = "llama_model_meta_val_str")]
    pub fn meta(&self, key: &str) -> Result<Option<String>> {
        let key = ffi::c_string("the key", key)?;
        Ok(meta(self.as_ptr(), &key))
    }

    /// The model's chat template (Jinja), if it has one.
    #[doc(alias = "llama_model_chat_template")]
    pub fn chat_template(&self) -> Option<String> {
        // SAFETY: the model is alive; the text is its own and NUL-terminated.
        unsafe {
            let text = sys::llama_model_chat_template(self.as_ptr(), ptr::null());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    /// Expands a spec for this model, without making a context.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedArch`], or [`Error::Plan`] when the spec does not fit the layers.
    pub fn plan(&self, spec: &Spec) -> Result<Plan> {
        header::plan(self.arch(), self.n_layer(), self.n_layer_nextn(), spec)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("arch", &self.0.arch)
            .field("n_layer", &self.n_layer())
            .finish_non_exhaustive()
    }
}

fn meta(model: *const sys::llama_model, key: &CStr) -> Option<String> {
    let mut buf = vec![0u8; 256];
    loop {
        // SAFETY: the model is alive, the key NUL-terminated, the buffer as long as said.
        let n = unsafe {
            sys::llama_model_meta_val_str(model, key.as_ptr(), buf.as_mut_ptr().cast(), buf.len())
        };
        let n = usize::try_from(n).ok()?;
        if n < buf.len() {
            buf.truncate(n);
            return Some(String::from_utf8_lossy(&buf).into_owned());
        }
        buf.resize(n + 1, 0);
    }
}
