//! Files that are not a model, or not quite one, are refused with a reason.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use llama_sys as sys;
use rys::{Error, Header, Model, ModelParams};
use tempfile::TempDir;

use crate::random::Random;
use crate::writer::Writer;

/// The text without the path in front.
fn reason(path: &Path, error: &Error) -> String {
    error.to_string().replace(&*path.to_string_lossy(), "FILE")
}

/// Both reading the header of a changed llama and loading it give this reason.
#[track_caller]
fn check(change: impl Fn(&Writer), expected: &str) {
    let dir = TempDir::new().unwrap();
    let w = Writer::llama(2);
    change(&w);
    let path = w.save(&dir, "model.gguf");
    let expected = format!("FILE: not a usable model file: {expected}");
    assert_eq!(reason(&path, &Header::read(&path).unwrap_err()), expected);
    let error = Model::load(&path, ModelParams::new()).unwrap_err();
    assert_eq!(reason(&path, &error), expected);
}

#[test]
fn a_good_header_is_read() {
    let dir = TempDir::new().unwrap();
    let w = Writer::llama(2);
    let path = w.save(&dir, "model.gguf");
    let header = Header::read(&path).unwrap();
    assert_eq!((header.arch.as_str(), header.n_layer()), ("llama", 2));
    assert_eq!(Model::load(&path, ModelParams::new()).unwrap().n_layer(), 2);

    w.u32("llama.nextn_predict_layers", 1);
    let header = Header::read(w.save(&dir, "model.gguf")).unwrap();
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
    check(
        |w| {
            w.str("tokenizer.ggml.model", "test");
            w.strs("tokenizer.ggml.tokens", &[]);
        },
        "key tokenizer.ggml.tokens is empty",
    );
}

/// Also where nothing but the vocabulary is loaded.
#[test]
fn a_vocabulary_is_checked_before_it_is_loaded() {
    for tokens in [&[][..], &["a", "a"]] {
        let dir = TempDir::new().unwrap();
        let w = Writer::llama(2);
        w.str("tokenizer.ggml.model", "test");
        w.strs("tokenizer.ggml.tokens", tokens);
        let path = w.save(&dir, "model.gguf");
        let error = Model::load(path, ModelParams::new().vocab_only(true)).unwrap_err();
        assert!(matches!(error, Error::Header { .. }), "{error:?}");
    }
}

#[test]
fn zeros_that_the_loader_divides_by_are_refused() {
    for (arch, key) in [
        ("qwen35", "full_attention_interval"),
        ("qwen3next", "ssm.group_count"),
        ("mamba2", "ssm.time_step_rank"),
        ("rwkv7", "wkv.head_size"),
        ("gemma3", "attention.head_count"),
    ] {
        check(
            |w| {
                w.str("general.architecture", arch);
                w.u32(&format!("{arch}.block_count"), 2);
                w.u32(&format!("{arch}.{key}"), 0);
            },
            &format!("key {arch}.{key} is 0; llama.cpp divides by it"),
        );
    }
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
    let w = Writer::llama(2);
    w.u32("llama.block_count", 600);
    let path = w.save(&dir, "model.gguf");
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
    let path = Writer::llama(2).save(&dir, "model.gguf");
    let whole = fs::read(&path).unwrap();
    let header = Writer::llama(2).header_len();
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

#[test]
fn mutated_headers_give_a_model_or_an_error() {
    let dir = TempDir::new().unwrap();
    let path = Writer::llama(2).save(&dir, "model.gguf");
    let whole = fs::read(&path).unwrap();
    let header = Writer::llama(2).header_len();
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
