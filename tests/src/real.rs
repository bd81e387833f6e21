//! The real models of the tests.

use std::env;
use std::path::PathBuf;

/// Names the folder of the models.
pub const VAR: &str = "RYS_MODELS";

/// SmolLM2-135M-Instruct, Q4_1: `llama`, 30 layers.
pub fn smollm2() -> PathBuf {
    find("SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// gemma-3-270m, Q4_K_M: `gemma3` with sliding windows, 18 layers.
pub fn gemma3() -> PathBuf {
    find("gemma-3-270m-q4_k_m.gguf")
}

fn find(name: &str) -> PathBuf {
    let dir = env::var_os(VAR).unwrap_or_else(|| {
        panic!(
            "{VAR} is not set: it names the folder with {name}; run `cargo xtask test`, which \
             fetches the models and sets it"
        )
    });
    let path = PathBuf::from(dir).join(name);
    assert!(
        path.is_file(),
        "no {}; run `cargo xtask test`, which fetches it",
        path.display()
    );
    path
}
