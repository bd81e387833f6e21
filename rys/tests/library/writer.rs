//! Small GGUF files, made by llama.cpp's own writer.

use std::ffi::CString;
use std::path::PathBuf;

use llama_sys as sys;
use tempfile::TempDir;

use crate::random::Random;

pub const N_EMBD: i64 = 32;
pub const N_VOCAB: i64 = 16;

/// A GGUF file in the making.
pub struct Writer {
    gguf: *mut sys::gguf_context,
    tensors: *mut sys::ggml_context,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: both are owned by this writer alone.
        unsafe {
            sys::gguf_free(self.gguf);
            sys::ggml_free(self.tensors);
        }
    }
}

impl Writer {
    pub fn empty() -> Self {
        let params = sys::ggml_init_params {
            mem_size: 1 << 22,
            mem_buffer: std::ptr::null_mut(),
            no_alloc: false,
        };
        // SAFETY: plain constructors.
        unsafe {
            Self {
                gguf: sys::gguf_init_empty(),
                tensors: sys::ggml_init(params),
            }
        }
    }

    pub fn u32(&self, key: &str, value: u32) {
        let key = CString::new(key).unwrap();
        // SAFETY: the key is NUL-terminated.
        unsafe { sys::gguf_set_val_u32(self.gguf, key.as_ptr(), value) };
    }

    pub fn f32(&self, key: &str, value: f32) {
        let key = CString::new(key).unwrap();
        // SAFETY: the key is NUL-terminated.
        unsafe { sys::gguf_set_val_f32(self.gguf, key.as_ptr(), value) };
    }

    pub fn str(&self, key: &str, value: &str) {
        let (key, value) = (CString::new(key).unwrap(), CString::new(value).unwrap());
        // SAFETY: both are NUL-terminated.
        unsafe { sys::gguf_set_val_str(self.gguf, key.as_ptr(), value.as_ptr()) };
    }

    pub fn strs(&self, key: &str, values: &[&str]) {
        let key = CString::new(key).unwrap();
        let values: Vec<_> = values.iter().map(|v| CString::new(*v).unwrap()).collect();
        let mut ptrs: Vec<_> = values.iter().map(|v| v.as_ptr()).collect();
        // SAFETY: all are NUL-terminated and copied.
        unsafe {
            sys::gguf_set_arr_str(self.gguf, key.as_ptr(), ptrs.as_mut_ptr(), ptrs.len());
        }
    }

    pub fn u32s(&self, key: &str, values: &[u32]) {
        let key = CString::new(key).unwrap();
        // SAFETY: the values are of the given type and copied.
        unsafe {
            sys::gguf_set_arr_data(
                self.gguf,
                key.as_ptr(),
                sys::GGUF_TYPE_UINT32,
                values.as_ptr().cast(),
                values.len(),
            );
        }
    }

    pub fn remove(&self, key: &str) {
        let key = CString::new(key).unwrap();
        // SAFETY: the key is NUL-terminated.
        unsafe { sys::gguf_remove_key(self.gguf, key.as_ptr()) };
    }

    /// A tensor of numbers that its name seeds; norms are all ones.
    pub fn tensor(&self, name: &str, ne: [i64; 2]) {
        let seed = name
            .bytes()
            .fold(7, |h: u64, b| h.wrapping_mul(31) + u64::from(b));
        let mut random = Random(seed);
        let c_name = CString::new(name).unwrap();
        // SAFETY: the name is NUL-terminated; the data is as large as the tensor.
        unsafe {
            let t = sys::ggml_new_tensor_2d(self.tensors, sys::GGML_TYPE_F32, ne[0], ne[1]);
            sys::ggml_set_name(t, c_name.as_ptr());
            let n = sys::ggml_nbytes(t) / size_of::<f32>();
            for x in std::slice::from_raw_parts_mut((*t).data.cast::<f32>(), n) {
                *x = if name.contains("norm") {
                    1.0
                } else {
                    random.float(0.3)
                };
            }
            sys::gguf_add_tensor(self.gguf, t);
        }
    }

    /// A llama that loads.
    pub fn llama(n_layer: u32) -> Self {
        let w = Self::empty();
        w.str("general.architecture", "llama");
        w.u32("llama.block_count", n_layer);
        w.u32("llama.context_length", 1024);
        w.u32("llama.embedding_length", N_EMBD as u32);
        w.u32("llama.feed_forward_length", N_EMBD as u32);
        w.u32("llama.attention.head_count", 2);
        w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
        w.u32("llama.vocab_size", N_VOCAB as u32);
        w.str("tokenizer.ggml.model", "no_vocab");
        w.tensor("token_embd.weight", [N_EMBD, N_VOCAB]);
        w.tensor("output_norm.weight", [N_EMBD, 1]);
        for il in 0..n_layer {
            for name in [
                "attn_q",
                "attn_k",
                "attn_v",
                "attn_output",
                "ffn_gate",
                "ffn_up",
                "ffn_down",
            ] {
                w.tensor(&format!("blk.{il}.{name}.weight"), [N_EMBD, N_EMBD]);
            }
            for name in ["attn_norm", "ffn_norm"] {
                w.tensor(&format!("blk.{il}.{name}.weight"), [N_EMBD, 1]);
            }
        }
        w
    }

    /// A LoRA of rank 4 for one projection of such a llama.
    pub fn lora(layer: u32) -> Self {
        let w = Self::empty();
        w.str("general.type", "adapter");
        w.str("general.architecture", "llama");
        w.str("adapter.type", "lora");
        w.f32("adapter.lora.alpha", 4.0);
        w.tensor(&format!("blk.{layer}.attn_v.weight.lora_a"), [N_EMBD, 4]);
        w.tensor(&format!("blk.{layer}.attn_v.weight.lora_b"), [4, N_EMBD]);
        w
    }

    /// Length of the file in front of the tensor data, in bytes.
    pub fn header_len(&self) -> usize {
        // SAFETY: the header is alive.
        unsafe { sys::gguf_get_meta_size(self.gguf) }
    }

    pub fn save(&self, dir: &TempDir, name: &str) -> PathBuf {
        let path = dir.path().join(name);
        let c_path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path is NUL-terminated.
        assert!(unsafe { sys::gguf_write_to_file(self.gguf, c_path.as_ptr(), false) });
        path
    }
}
