//! The shim and the bindings: what Rust sees of the C++ tree.

use std::fs;
use std::panic;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::config::Config;
use crate::tree::Tree;

/// Everything of llama.h, gguf.h and the shim, and the part of ggml.h that writing a GGUF file
/// and reading a log level need.
const FUNCTIONS: &[&str] = &[
    "llama_.*",
    "gguf_.*",
    "rys_.*",
    "ggml_(init|free|new_tensor.*|set_name|get_name|get_data|get_first_tensor|get_next_tensor|get_tensor|nbytes|nelements|n_dims|row_size|type_size|blck_size|type_name|is_quantized|tensor_overhead|quantize_chunk|commit|version|log_set|fp32_to_fp16_row|fp16_to_fp32_row|get_type_traits|set_no_alloc|guid_matches|time_us|time_init|set_abort_callback)",
    "ggml_backend_(dev_count|dev_get|dev_by_type|dev_name|dev_description|dev_memory|dev_type|buft_name|load_all|tensor_get|tensor_set)",
];
const TYPES: &[&str] = &[
    "llama_.*",
    "gguf_.*",
    "rys_.*",
    "ggml_(type|log_level|log_callback|context|tensor|init_params|abort_callback|backend_dev_t|backend_dev_type|backend_buffer_type_t)",
];
const VARIABLES: &[&str] = &[
    "LLAMA_.*",
    "GGUF_.*",
    "RYS_.*",
    "GGML_(MAX_DIMS|MAX_NAME|MEM_ALIGN)",
];

/// Folders with the headers of the tree.
fn includes(tree: &Tree, config: &Config) -> Vec<PathBuf> {
    let src = tree.src();
    let mut dirs = vec![
        config.package.join("shim"),
        src.join("include"),
        src.join("ggml/include"),
    ];
    if config.server {
        let parts = ["", "common", "vendor", "tools/server", "tools/mtmd", "src"];
        dirs.extend(parts.iter().map(|p| src.join(p)));
    }
    dirs
}

/// Compiles `shim/*.cpp`; the files `server*.cpp` only with the feature `server`, which also
/// defines `RYS_SERVER`.
pub fn shim(tree: &Tree, config: &Config) -> Result<()> {
    let dir = config.package.join("shim");
    let mut files = Vec::new();
    for item in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = item?.path();
        let server = path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("server"));
        if path.extension().is_some_and(|e| e == "cpp") && (config.server || !server) {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "no .cpp file in {}", dir.display());
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .debug(false)
        .cargo_metadata(false)
        .cargo_warnings(true)
        .files(files)
        .includes(includes(tree, config));
    if config.server {
        build.define("RYS_SERVER", None);
    }
    build
        .try_compile("rys_shim")
        .map_err(|e| anyhow!("the shim does not compile: {e}"))
}

/// Writes `bindings.rs` to the output folder.
pub fn bindgen(tree: &Tree, config: &Config) -> Result<()> {
    let mut builder = bindgen::Builder::default()
        .header_contents("rys.h", "#include \"llama.h\"\n#include \"ggml.h\"\n#include \"ggml-backend.h\"\n#include \"gguf.h\"\n#include \"shim.h\"\n")
        .clang_args(includes(tree, config).iter().map(|d| format!("-I{}", d.display())))
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .generate_comments(false)
        .layout_tests(false)
        .size_t_is_usize(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|e| anyhow!("{e}"))?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .wrap_unsafe_ops(true);
    if config.server {
        builder = builder.clang_arg("-DRYS_SERVER");
    }
    builder = FUNCTIONS
        .iter()
        .fold(builder, |b, f| b.allowlist_function(f));
    builder = TYPES.iter().fold(builder, |b, t| b.allowlist_type(t));
    builder = VARIABLES.iter().fold(builder, |b, v| b.allowlist_var(v));
    // Without libclang bindgen panics; its message is what the user needs.
    panic::set_hook(Box::new(|_| ()));
    let made = panic::catch_unwind(panic::AssertUnwindSafe(|| builder.generate()));
    let _ = panic::take_hook();
    let bindings = match made {
        Ok(made) => made.map_err(|e| anyhow!("bindgen cannot read the headers: {e}"))?,
        Err(cause) => {
            let text = cause
                .downcast_ref::<String>()
                .map_or("unknown cause", String::as_str);
            bail!("bindgen failed: {text}; `cargo xtask setup` installs libclang")
        }
    };
    let path = config.out_dir.join("bindings.rs");
    bindings
        .write_to_file(&path)
        .with_context(|| format!("cannot write {}", path.display()))
}
