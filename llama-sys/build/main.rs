//! Builds the patched llama.cpp, the shim over it and the bindings to both.

mod bindings;
mod cmake;
mod link;
// `xtask` includes these three as well and uses the rest of them.
#[allow(dead_code)]
mod config;
#[allow(dead_code)]
mod patch;
#[allow(dead_code, unused_imports)]
mod source;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use config::Config;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let config = Config::from_env()?;
    let repository = config.package.parent().unwrap_or(&config.package);
    let vendor = repository.join("vendor");
    let patches = repository.join("patches");
    rerun_if_changed(&config, &vendor, &patches);

    let scratch = config.target_dir.join("llama-cpp");
    let pin = source::Pin::read(&vendor)?;
    let source = source::find(
        config.source_dir.as_deref(),
        &vendor,
        config.cache.as_deref(),
        &scratch,
    )?;
    let series = patch::Series::read(&patches)?;

    let tree = tree::Tree::lock(&config.target_dir, "", &source, &config.options)?;
    for note in tree.stamp(&source, &series)? {
        println!("cargo::warning={note}");
    }
    let targets = if config.server {
        cmake::SERVER
    } else {
        cmake::LIBRARY
    };
    let pin = source.pinned.then_some(&pin);
    cmake::build(&tree, &config.options, pin, targets, config.jobs)?;
    bindings::shim(&tree, &config)?;
    bindings::bindgen(&tree, &config)?;
    for line in link::lines(&tree, &config)? {
        println!("{line}");
    }
    println!("cargo::metadata=root={}", tree.root.display());
    println!(
        "cargo::metadata=include={}",
        tree.src().join("include").display()
    );
    Ok(())
}

fn rerun_if_changed(config: &Config, vendor: &Path, patches: &Path) {
    for var in [
        source::SOURCE_DIR_VAR,
        "CC",
        "CXX",
        "CFLAGS",
        "CXXFLAGS",
        "LIBCLANG_PATH",
    ] {
        println!("cargo::rerun-if-env-changed={var}");
    }
    let shown = |path: &Path| println!("cargo::rerun-if-changed={}", path.display());
    shown(&config.package.join("build"));
    shown(&config.package.join("shim"));
    shown(&vendor.join("UPSTREAM.toml"));
    shown(patches);
    match &config.source_dir {
        // Not the folder itself: git writes into it all the time.
        Some(dir) => [
            "CMakeLists.txt",
            "cmake",
            "common",
            "ggml",
            "include",
            "src",
            "tools",
            "vendor",
        ]
        .iter()
        .for_each(|part| shown(&dir.join(part))),
        None => {
            // A path that does not exist would start the script every time.
            let tree = vendor.join("llama.cpp");
            if !tree.exists() {
                // The source comes from the user's cache folder.
                for var in ["XDG_CACHE_HOME", "HOME"] {
                    println!("cargo::rerun-if-env-changed={var}");
                }
            }
            for path in [vendor.join(".llama.cpp.manifest"), tree] {
                if path.exists() {
                    shown(&path);
                }
            }
        }
    }
}
