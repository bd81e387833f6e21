//! Model files that llama.cpp's loader cannot take end the program with a code, never with a signal.

use std::fs;
use std::path::{Path, PathBuf};

use rys_tests::gguf::{File, Writer};
use rys_tests::synth::{Synth, Value};
use rys_tests::{scratch, server};

/// Loads a model; the adapter that is missing ends the run once it is loaded.
fn load(model: &Path, mode: &str) -> (Option<i32>, String) {
    let dir = model.parent().unwrap();
    let mut args = vec![
        mode,
        "-m",
        model.to_str().unwrap(),
        "--lora",
        "missing.gguf",
        "-t",
        "1",
    ];
    if mode == "--server" {
        args.extend(["--port", "0"]);
    }
    let out = server::run(dir, &args, &[]);
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    (out.status.code(), log)
}

#[track_caller]
fn check(model: &Path, mode: &str, expected: &str) {
    let (code, log) = load(model, mode);
    assert_eq!(code, Some(1), "{mode}: {log}");
    assert!(log.contains(expected), "{mode}: {log}");
}

/// A llama's tensors under the name of an architecture that must have experts.
fn without_experts(dir: &Path) -> PathBuf {
    let llama = File::read(&Synth::new("llama").write(dir));
    let arch = "smallthinker";
    let mut out = Writer::new();
    out.set_all(&llama);
    out.set_str("general.architecture", arch);
    for key in llama.keys() {
        if let (Some(name), Some(value)) = (key.strip_prefix("llama."), llama.u32(key)) {
            out.set_u32(&format!("{arch}.{name}"), value);
        }
    }
    out.set_f32(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-5);
    for t in llama.tensors() {
        out.add(t.name, t.kind, t.ne, t.data);
    }
    let path = dir.join("without-experts.gguf");
    out.write(&path);
    path
}

const MODES: [&str; 3] = ["--server", "--chat", "--cli"];

#[test]
fn a_failed_assertion_while_loading_is_a_failure_to_load() {
    let dir = scratch();
    let model = Synth::new("gemma3").write(dir.path());
    for mode in MODES {
        check(&model, mode, "failed to open 'missing.gguf'");
    }
    let model = without_experts(dir.path());
    for mode in MODES {
        check(&model, mode, "GGML_ASSERT(n_expert > 0");
    }
}

#[test]
fn a_zero_that_the_loader_divides_by_is_refused() {
    let dir = scratch();
    let model = Synth::new("llama")
        .with("full_attention_interval", Value::U32(0))
        .write(dir.path());
    for mode in MODES {
        check(&model, mode, "llama.full_attention_interval is 0");
    }
}

#[test]
fn changed_bytes_of_a_header() {
    let dir = scratch();
    let model = Synth::new("llama").write(dir.path());
    let whole = fs::read(&model).unwrap();
    // keys, values and the first tensors' names; all of the vocabulary
    let header = 6000;
    let mut random = fastrand::Rng::with_seed(5);
    let mut loaded = 0;
    for i in 0..50 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..header);
            bytes[at] = match random.u8(..4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ (1 << random.u8(..8)),
                _ => random.u8(..),
            };
        }
        fs::write(&model, &bytes).unwrap();
        let (code, log) = load(&model, MODES[i % MODES.len()]);
        assert!(matches!(code, Some(1 | 2)), "{i}: {code:?} {log}");
        loaded += u32::from(log.contains("failed to open 'missing.gguf'"));
    }
    assert!((1..50).contains(&loaded), "{loaded} of 50 loaded");
}
