//! What a program that uses the C++ tree links to.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::cmake::cache_value;
use crate::config::Config;
use crate::tree::Tree;

/// Archives in the order of upstream's own link line: a library before what it uses.
fn archives(config: &Config) -> Vec<(&'static str, &'static str)> {
    let o = &config.options;
    let mut list = Vec::new();
    if config.server {
        list.extend([
            ("tools/completion", "llama-completion-impl"),
            ("tools/cli", "llama-cli-impl"),
            ("tools/server", "llama-server-impl"),
            ("tools/server", "server-context"),
            ("common", "llama-common"),
            ("common", "llama-common-base"),
            ("tools/mtmd", "mtmd"),
        ]);
    }
    list.extend([("src", "llama"), ("ggml/src", "ggml")]);
    list.extend(
        [
            (o.cuda, ("ggml/src/ggml-cuda", "ggml-cuda")),
            (o.vulkan, ("ggml/src/ggml-vulkan", "ggml-vulkan")),
            (o.metal, ("ggml/src/ggml-metal", "ggml-metal")),
            (o.rpc, ("ggml/src/ggml-rpc", "ggml-rpc")),
            (
                o.target.contains("apple"),
                ("ggml/src/ggml-blas", "ggml-blas"),
            ),
        ]
        .into_iter()
        .filter_map(|(on, archive)| on.then_some(archive)),
    );
    list.extend([("ggml/src", "ggml-cpu"), ("ggml/src", "ggml-base")]);
    if config.server {
        list.extend([
            ("vendor/hash", "vendor-hash"),
            ("tools/ui", "llama-ui"),
            ("vendor/cpp-httplib", "cpp-httplib"),
        ]);
    }
    list
}

/// Lines for cargo: search paths, archives, system libraries.
pub fn lines(tree: &Tree, config: &Config) -> Result<Vec<String>> {
    let mut lines = vec![
        "cargo::rustc-link-lib=static=rys_shim".to_owned(),
        format!(
            "cargo::rustc-link-search=native={}",
            config.out_dir.display()
        ),
    ];
    let mut paths: Vec<PathBuf> = Vec::new();
    for (dir, name) in archives(config) {
        let dir = tree.build().join(dir);
        ensure!(
            dir.join(format!("lib{name}.a")).is_file(),
            "the build made no lib{name}.a in {}; see {}",
            dir.display(),
            tree.log().display()
        );
        // Not bundled: profiles and crates link the same archives instead of copies.
        lines.push(format!("cargo::rustc-link-lib=static:-bundle={name}"));
        if !paths.contains(&dir) {
            paths.push(dir);
        }
    }
    for dir in paths {
        lines.push(format!("cargo::rustc-link-search=native={}", dir.display()));
    }
    for name in system(tree, config)? {
        lines.push(format!("cargo::rustc-link-lib={name}"));
    }
    Ok(lines)
}

fn system(tree: &Tree, config: &Config) -> Result<Vec<String>> {
    let o = &config.options;
    let apple = o.target.contains("apple");
    let mut libs: Vec<String> = Vec::new();
    let mut add = |names: &[&str]| libs.extend(names.iter().map(|n| format!("dylib={n}")));
    if config.server && cache_value(tree, "OPENSSL_SSL_LIBRARY")?.is_some() {
        add(&["ssl", "crypto"]);
    }
    if cache_value(tree, "GGML_OPENMP_ENABLED")?.as_deref() == Some("ON") {
        add(&[if apple { "omp" } else { "gomp" }]);
    }
    if o.cuda {
        add(&["cudart", "cublas", "cublasLt", "cuda"]);
    }
    if o.vulkan {
        add(&["vulkan"]);
    }
    if apple {
        add(&["c++"]);
        libs.extend(["Accelerate", "Foundation"].map(|f| format!("framework={f}")));
        if o.metal {
            libs.extend(["Metal", "MetalKit"].map(|f| format!("framework={f}")));
        }
    } else {
        add(&["stdc++", "m", "dl", "pthread"]);
    }
    Ok(libs)
}
