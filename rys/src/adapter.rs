use std::fmt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use llama_sys as sys;

use crate::ffi::{self, call, or_unknown};
use crate::{Context, Error, Model, Result};

/// A LoRA adapter loaded for a model. A cheap handle that keeps its model alive; `Send` and `Sync`.
/// Loading and freeing one waits for the model's contexts that are computing.
///
/// An adapter belongs to source layers, so it acts on every pass of a repeated one.
#[derive(Clone)]
#[doc(alias = "llama_adapter_lora")]
pub struct LoraAdapter(Arc<Inner>);

struct Inner {
    ptr: NonNull<sys::llama_adapter_lora>,
    model: Model,
}

// SAFETY: a loaded adapter is only read; it is made and freed under `write_adapters`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let _lock = self.model.write_adapters();
        // SAFETY: the last owner; contexts that use the adapter hold a handle.
        let _ = call(|err| unsafe { sys::rys_adapter_lora_free(self.ptr.as_ptr(), err) });
    }
}

impl fmt::Debug for LoraAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoraAdapter")
            .field("model", &self.0.model)
            .finish_non_exhaustive()
    }
}

impl LoraAdapter {
    /// Loads a LoRA adapter (GGUF) for `model`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be opened; [`Error::Adapter`] for a file that is damaged or
    /// made for another model.
    #[doc(alias = "llama_adapter_lora_init")]
    pub fn load(model: &Model, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if model.is_vocab_only() || model.is_no_alloc() {
            return Err(Error::invalid(
                "the model was loaded without weights; load it whole",
            ));
        }
        if !std::fs::metadata(path).map_err(Error::io(path))?.is_file() {
            return Err(Error::Adapter {
                reason: "not a regular file".to_owned(),
            });
        }
        let c_path = ffi::c_path(path)?;
        let mut out = ptr::null_mut();
        let lock = model.write_adapters();
        let done = call(|err| {
            // SAFETY: the model is alive, the path NUL-terminated.
            unsafe { sys::rys_adapter_lora_init(model.as_ptr(), c_path.as_ptr(), &mut out, err) }
        });
        drop(lock);
        match (done, NonNull::new(out)) {
            (Ok(_), Some(ptr)) => Ok(Self(Arc::new(Inner {
                ptr,
                model: model.clone(),
            }))),
            (Ok(reason) | Err(reason), _) => Err(Error::Adapter {
                reason: or_unknown(reason),
            }),
        }
    }
}

/// Adapters of a context.
impl Context {
    /// Uses these LoRA adapters, each with its scale, in place of those in use; an empty slice
    /// removes them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for an adapter of another model; [`Error::Adapter`].
    #[doc(alias = "llama_set_adapters_lora")]
    pub fn set_loras(&mut self, loras: &[(&LoraAdapter, f32)]) -> Result<()> {
        let model = self.model.as_ptr();
        if loras.iter().any(|(lora, _)| lora.0.model.as_ptr() != model) {
            return Err(Error::invalid("the adapter was loaded for another model"));
        }
        let mut ptrs: Vec<_> = loras.iter().map(|(lora, _)| lora.0.ptr.as_ptr()).collect();
        let mut scales: Vec<f32> = loras.iter().map(|&(_, scale)| scale).collect();
        let mut ret = 0;
        let done = call(|err| {
            // SAFETY: the context and the adapters are alive; both arrays are as long as said.
            unsafe {
                sys::rys_set_adapters_lora(
                    self.as_ptr(),
                    ptrs.as_mut_ptr(),
                    ptrs.len(),
                    scales.as_mut_ptr(),
                    &mut ret,
                    err,
                )
            }
        });
        // old and new ones both stay alive if the call failed half-way
        self.loras
            .extend(loras.iter().map(|&(lora, _)| lora.clone()));
        adapter_ok(done, ret)?;
        let n_old = self.loras.len() - loras.len();
        self.loras.drain(..n_old);
        Ok(())
    }

    /// Uses a control vector: `n_embd` values for each source layer from layer 1 on (layer 0 has
    /// none), added to the hidden state after each pass of the layers in `layers`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a length that is not a multiple of `n_embd`, or an empty or
    /// out-of-range `layers` (half-open, within `1..n_layer`); [`Error::Adapter`].
    #[doc(alias = "llama_set_adapter_cvec")]
    pub fn set_control_vector(&mut self, data: &[f32], layers: std::ops::Range<u32>) -> Result<()> {
        let n_embd = self.model.n_embd();
        let n_layer = self.model.n_layer();
        if data.is_empty() || n_embd == 0 || !data.len().is_multiple_of(n_embd) {
            return Err(Error::invalid(format!(
                "a control vector of {} values; it has n_embd = {n_embd} for each layer from 1 on",
                data.len()
            )));
        }
        if layers.is_empty() || layers.start < 1 || layers.end > n_layer {
            return Err(Error::invalid(format!(
                "a control vector for layers {layers:?}; allowed are ranges within 1..{n_layer}"
            )));
        }
        // C's end is inclusive
        self.control_vector(
            data.as_ptr(),
            data.len(),
            n_embd,
            layers.start,
            layers.end - 1,
        )
    }

    /// Removes the control vector.
    ///
    /// # Errors
    ///
    /// [`Error::Adapter`].
    pub fn clear_control_vector(&mut self) -> Result<()> {
        self.control_vector(ptr::null(), 0, 0, 0, 0)
    }

    fn control_vector(
        &mut self,
        data: *const f32,
        len: usize,
        n_embd: usize,
        first: u32,
        last: u32,
    ) -> Result<()> {
        let n_embd = ffi::c_len("n_embd", n_embd)?;
        let mut ret = 0;
        let done = call(|err| {
            // SAFETY: the context is alive; `data` is null or has `len` values, which are copied.
            unsafe {
                sys::rys_set_adapter_cvec(
                    self.as_ptr(),
                    data,
                    len,
                    n_embd,
                    first.cast_signed(),
                    last.cast_signed(),
                    &mut ret,
                    err,
                )
            }
        });
        adapter_ok(done, ret)
    }
}

fn adapter_ok(done: Result<String, String>, ret: i32) -> Result<()> {
    match done {
        Ok(_) if ret == 0 => Ok(()),
        Ok(reason) => Err(Error::Adapter {
            reason: or_unknown(reason),
        }),
        Err(reason) => Err(Error::Adapter { reason }),
    }
}
