//! Files that are not a model, or not quite one, are refused with a reason.

#![allow(clippy::unwrap_used)]

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use llama_sys as sys;
use rys::{Error, Header, Model, ModelParams};
use tempfile::TempDir;

const N_EMBD: i64 = 32;
const N_VOCAB: i64 = 16;

/// A GGUF file in the making.
struct Writer {
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
    fn empty() -> Self {
        let params = sys::ggml_init_params {
            mem_size: 1 << 20,
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

    fn u32(&self, key: &str, value: u32) {
        let key = CString::new(key).unwrap();
        // SAFETY: the key is NUL-terminated.
        unsafe { sys::gguf_set_val_u32(self.gguf, key.as_ptr(), value) };
    }

    fn f32(&self, key: &str, value: f32) {
        let key = CString::new(key).unwrap();
        // SAFETY: the key is NUL-terminated.
        unsafe { sys::gguf_set_val_f32(self.gguf, key.as_ptr(), value) };
    }

    fn str(&self, key: &str, value: &str) {
        let (key, value) = (CString::new(key).unwrap(), CString::new(value).unwrap());
        // SAFETY: both are NUL-terminated.
        unsafe { sys::gguf_set_val_str(self.gguf, key.as_ptr(), value.as_ptr()) };
    }

    fn strs(&self, key: &str, values: &[&str]) {
        let key = CString::new(key).unwrap();
        let values: Vec<_> = values.iter().map(|v| CString::new(*v).unwrap()).collect();
        let mut ptrs: Vec<_> = values.iter().map(|v| v.as_ptr()).collect();
        // SAFETY: all are NUL-terminated and copied.
        unsafe {
            sys::gguf_set_arr_str(self.gguf, key.as_ptr(), ptrs.as_mut_ptr(), ptrs.len());
        }
    }

    fn u32s(&self, key: &str, values: &[u32]) {
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

    fn remove(&self, key: &str) {
        let key = CString::new(key).unwrap();
        // SAFETY: the key is NUL-terminated.
        unsafe { sys::gguf_remove_key(self.gguf, key.as_ptr()) };
    }

    fn tensor(&self, name: &str, ne: [i64; 2]) {
        let name = CString::new(name).unwrap();
        // SAFETY: the name is NUL-terminated; the data is as large as the tensor.
        unsafe {
            let t = sys::ggml_new_tensor_2d(self.tensors, sys::GGML_TYPE_F32, ne[0], ne[1]);
            sys::ggml_set_name(t, name.as_ptr());
            std::ptr::write_bytes((*t).data.cast::<u8>(), 0, sys::ggml_nbytes(t));
            sys::gguf_add_tensor(self.gguf, t);
        }
    }

    /// A llama of two layers that loads.
    fn llama() -> Self {
        let w = Self::empty();
        w.str("general.architecture", "llama");
        w.u32("llama.block_count", 2);
        w.u32("llama.context_length", 64);
        w.u32("llama.embedding_length", N_EMBD as u32);
        w.u32("llama.feed_forward_length", N_EMBD as u32);
        w.u32("llama.attention.head_count", 2);
        w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
        w.u32("llama.vocab_size", N_VOCAB as u32);
        w.str("tokenizer.ggml.model", "no_vocab");
        w.tensor("token_embd.weight", [N_EMBD, N_VOCAB]);
        w.tensor("output_norm.weight", [N_EMBD, 1]);
        for il in 0..2 {
            for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
                w.tensor(&format!("blk.{il}.{name}.weight"), [N_EMBD, N_EMBD]);
            }
            for name in ["ffn_gate", "ffn_up", "ffn_down"] {
                w.tensor(&format!("blk.{il}.{name}.weight"), [N_EMBD, N_EMBD]);
            }
            for name in ["attn_norm", "ffn_norm"] {
                w.tensor(&format!("blk.{il}.{name}.weight"), [N_EMBD, 1]);
            }
        }
        w
    }

    fn save(&self, dir: &TempDir) -> PathBuf {
        let path = dir.path().join("model.gguf");
        let c_path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path is NUL-terminated.
        assert!(unsafe { sys::gguf_write_to_file(self.gguf, c_path.as_ptr(), false) });
        path
    }
}

/// The text without the path in front.
fn reason(path: &Path, error: &Error) -> String {
    error.to_string().replace(&*path.to_string_lossy(), "FILE")
}

/// Both reading the header of a changed llama and loading it give this reason.
#[track_caller]
fn check(change: impl Fn(&Writer), expected: &str) {
    let dir = TempDir::new().unwrap();
    let w = Writer::llama();
    change(&w);
    let path = w.save(&dir);
    let expected = format!("FILE: not a usable model file: {expected}");
    assert_eq!(reason(&path, &Header::read(&path).unwrap_err()), expected);
    let error = Model::load(&path, ModelParams::new()).unwrap_err();
    assert_eq!(reason(&path, &error), expected);
}

#[test]
fn a_good_header_is_read() {
    let dir = TempDir::new().unwrap();
    let w = Writer::llama();
    let path = w.save(&dir);
    let header = Header::read(&path).unwrap();
    assert_eq!((header.arch.as_str(), header.n_layer()), ("llama", 2));
    assert_eq!(Model::load(&path, ModelParams::new()).unwrap().n_layer(), 2);

    w.u32("llama.nextn_predict_layers", 1);
    let header = Header::read(w.save(&dir)).unwrap();
    assert_eq!(
        (
            header.block_count,
            header.nextn_predict_layers,
            header.n_layer()
        ),
        (2, 1, 1)
    );
}

#[test]
fn layer_counts_outside_their_range_are_refused() {
    let refused = |n: u32| {
        check(
            |w| w.u32("llama.block_count", n),
            &format!(
                "key llama.block_count is {n}; \
                 llama.cpp allows 1 to 512"
            ),
        );
    };
    refused(0);
    refused(513);
    refused(600);
    refused(1 << 31);
    check(
        |w| w.u32("llama.nextn_predict_layers", 3),
        "key llama.nextn_predict_layers is 3, \
         more than the 2 layers there are",
    );
}

#[test]
fn missing_and_wrongly_typed_keys_are_refused() {
    check(
        |w| w.remove("llama.block_count"),
        "key llama.block_count is missing",
    );
    check(
        |w| w.remove("general.architecture"),
        "key general.architecture is missing",
    );
    check(
        |w| w.str("llama.block_count", "2"),
        "key llama.block_count has type str where u32 is needed",
    );
    check(
        |w| w.u32s("llama.block_count", &[2, 2]),
        "key llama.block_count has type arr where u32 is needed",
    );
    check(
        |w| w.u32("general.architecture", 1),
        "key general.architecture has type u32 where str is needed",
    );
    check(
        |w| w.f32("llama.nextn_predict_layers", 1.0),
        "key llama.nextn_predict_layers has type f32 where u32 is \
         needed",
    );
}

#[test]
fn what_the_loader_asserts_on_is_refused() {
    check(
        |w| w.u32("llama.expert_count", 4),
        "the expert counts do not fit together: \
         llama.expert_count 4, expert_used_count 0, expert_group_count 0, \
         expert_group_used_count 0",
    );
    check(
        |w| w.u32s("llama.expert_used_count", &[0, 9]),
        "the expert counts do not fit together: \
         llama.expert_count 0, expert_used_count 9, expert_group_count 0, \
         expert_group_used_count 0",
    );
    check(
        |w| w.str("llama.rope.scaling.type", "su"),
        "key llama.rope.scaling.type is `su`; \
         llama.cpp allows none, linear, yarn and longrope",
    );
    check(
        |w| w.strs("tokenizer.ggml.tokens", &["a", "", "b", "", "a"]),
        "token 4 of the vocabulary, `a`, is there twice",
    );
}

#[test]
fn projectors_and_strange_names_are_refused() {
    check(
        |w| w.str("general.architecture", "clip"),
        "it is a vision or audio projector; give the language model",
    );
    check(
        |w| w.str("general.architecture", ""),
        "key general.architecture is missing",
    );
}

/// The shim's second line of defence, for what no check foresees.
#[test]
fn a_failed_assertion_is_an_error() {
    let dir = TempDir::new().unwrap();
    let w = Writer::llama();
    w.u32("llama.block_count", 600);
    let path = w.save(&dir);
    Header::read(&path).unwrap_err(); // starts llama.cpp
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut err = sys::rys_error { text: [0; 1024] };
    let mut model = std::ptr::null_mut();
    // SAFETY: the path is NUL-terminated, the buffers are valid.
    let status = unsafe {
        let params = sys::llama_model_default_params();
        sys::rys_model_load_from_file(path.as_ptr(), params, &mut model, &mut err)
    };
    // llama.cpp's own handler sees the exception first and logs it
    assert!(model.is_null());
    assert!(
        matches!(status as u32, sys::RYS_OK | sys::RYS_ASSERT),
        "{status}"
    );
}

/// Bytes that are not GGUF at all.
#[track_caller]
fn check_bytes(bytes: &[u8], expected: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    let error = Header::read(&path).unwrap_err();
    assert_eq!(reason(&path, &error), expected);
    let error = Model::load(&path, ModelParams::new().vocab_only(true)).unwrap_err();
    assert_eq!(reason(&path, &error), expected);
}

#[test]
fn files_that_are_not_gguf_are_refused() {
    check_bytes(b"", "FILE: not a usable model file: it is empty");
    check_bytes(
        b"hello, world",
        "FILE: not a usable model file: gguf_init_from_reader: invalid magic characters: 'hell', \
         expected 'GGUF'",
    );
    check_bytes(
        b"GGU",
        "FILE: not a usable model file: gguf_init_from_reader: failed to read magic",
    );
    check_bytes(
        b"GGUF\x03\0\0\0",
        "FILE: not a usable model file: gguf_init_from_reader: failed to read header",
    );
}

#[test]
fn what_is_not_a_file_is_refused() {
    let dir = TempDir::new().unwrap();
    let error = Header::read(dir.path()).unwrap_err();
    assert_eq!(
        reason(dir.path(), &error),
        "FILE: not a usable model file: it is a directory; give a GGUF file"
    );
    let absent = dir.path().join("absent.gguf");
    let error = Header::read(&absent).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    let error = Header::read("a\0b").unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
}

#[test]
fn every_truncation_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = Writer::llama().save(&dir);
    let whole = fs::read(&path).unwrap();
    // SAFETY: the file is a valid header.
    let header = unsafe {
        let gguf = Writer::llama();
        sys::gguf_get_meta_size(gguf.gguf)
    };
    assert!(header < whole.len());
    for n in 0..header {
        fs::write(&path, &whole[..n]).unwrap();
        let error = Header::read(&path).unwrap_err();
        assert!(matches!(error, Error::Header { .. }), "{n}: {error:?}");
    }
    // the header is whole and tensor data is missing
    fs::write(&path, &whole[..header]).unwrap();
    assert_eq!(Header::read(&path).unwrap().n_layer(), 2);
    let error = Model::load(&path, ModelParams::new()).unwrap_err();
    assert!(matches!(error, Error::Load { .. }), "{error:?}");
}

/// xorshift64*: the same mutations on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n as u64) as usize
    }
}

#[test]
fn mutated_headers_give_a_model_or_an_error() {
    let dir = TempDir::new().unwrap();
    let path = Writer::llama().save(&dir);
    let whole = fs::read(&path).unwrap();
    // SAFETY: the file is a valid header.
    let header = unsafe { sys::gguf_get_meta_size(Writer::llama().gguf) };
    let mut random = Random(7);
    let (mut loaded, mut refused) = (0, 0);
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(header);
            bytes[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ (1 << random.below(8)),
                _ => random.below(256) as u8,
            };
        }
        fs::write(&path, &bytes).unwrap();
        let model = Model::load(&path, ModelParams::new());
        // a graph for it is built in here
        match model.and_then(|m| m.context(rys::ContextParams::new().n_ctx(64))) {
            Ok(_) => loaded += 1,
            Err(e) => {
                assert!(!e.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(
        loaded > 0 && refused > 0,
        "{loaded} loaded, {refused} refused"
    );
}
