//! The program `rys-server` in tests.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
pub use xtask::server::Server;

/// Names the program.
pub const VAR: &str = "RYS_SERVER";

/// Path of the program.
pub fn program() -> PathBuf {
    let path = env::var_os(VAR).map(PathBuf::from).unwrap_or_else(|| {
        panic!(
            "{VAR} is not set: it names the program rys-server; run `cargo xtask test`, which \
             builds it and sets it"
        )
    });
    assert!(
        path.is_file(),
        "no {}; run `cargo xtask test`, which builds it",
        path.display()
    );
    path
}

/// Runs the program to its end, in `dir`, with nothing of llama.cpp in its environment but `vars`.
pub fn run(dir: &Path, args: &[&str], vars: &[(&str, &str)]) -> Output {
    let mut cmd = Command::new(program());
    xtask::server::isolate(&mut cmd);
    cmd.current_dir(dir)
        .args(args)
        .envs(vars.iter().copied())
        .stdin(Stdio::null());
    cmd.output().expect("cannot start rys-server")
}

/// Starts `rys-server` with a model, perhaps a plan, and more arguments. One thread, as several tests
/// run at a time.
///
/// # Panics
///
/// Without the program, and when it does not start.
pub fn start(model: &Path, spec: Option<&str>, args: &[&str]) -> Server {
    let mut all: Vec<&OsStr> = vec!["-m".as_ref(), model.as_ref()];
    all.extend(["-t", "1", "-tb", "1"].map(OsStr::new));
    if let Some(spec) = spec {
        all.extend(["--repeat-layers", spec].map(OsStr::new));
    }
    all.extend(args.iter().map(OsStr::new));
    Server::start(&program(), &all).unwrap_or_else(|e| panic!("{e:#}"))
}

/// Greedy completion of a prompt, with the most likely tokens at each place.
///
/// # Panics
///
/// When the server refuses it.
pub fn complete(server: &Server, prompt: &str, n_predict: u32, more: &Value) -> Completion {
    let mut body = json!({
        "prompt": prompt,
        "n_predict": n_predict,
        "temperature": 0,
        "n_probs": 20,
        "cache_prompt": true,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let (status, answer) = server
        .post("/completion", &body)
        .unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(status, 200, "{answer}");
    let count = |name: &str| answer["timings"][name].as_u64().expect("a count");
    Completion {
        text: answer["content"].as_str().expect("a text").into(),
        probs: answer["completion_probabilities"].clone(),
        n_cached: count("cache_n"),
        n_prompt: count("prompt_n"),
    }
}

/// What a server answers to a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    pub text: String,
    /// The most likely tokens and their logarithmic probabilities.
    pub probs: Value,
    /// Tokens of the prompt that were in the cache.
    pub n_cached: u64,
    /// Tokens of the prompt that were computed.
    pub n_prompt: u64,
}
