//! What to build: read once from the environment, then passed around.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::source;

/// What decides the content of a C++ build, besides the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub openmp: bool,
    pub native: bool,
    pub cuda: bool,
    pub vulkan: bool,
    pub metal: bool,
    pub rpc: bool,
    /// Target triple.
    pub target: String,
}

impl Options {
    /// The options of the default features.
    pub fn cpu(target: &str) -> Options {
        Options {
            openmp: true,
            native: true,
            cuda: false,
            vulkan: false,
            metal: false,
            rpc: false,
            target: target.into(),
        }
    }
}

/// Environment of the build script.
#[derive(Debug)]
pub struct Config {
    pub options: Options,
    /// Build and link the common and server libraries too.
    pub server: bool,
    /// Folder of the package `llama-sys`.
    pub package: PathBuf,
    pub out_dir: PathBuf,
    /// Cargo's target folder, shared by every profile.
    pub target_dir: PathBuf,
    /// The user's own llama.cpp checkout.
    pub source_dir: Option<PathBuf>,
    /// The user's cache folder of this project.
    pub cache: Option<PathBuf>,
    pub jobs: usize,
}

impl Config {
    /// Reads the environment that cargo gives to a build script.
    pub fn from_env() -> Result<Config> {
        let path = |name: &str| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let need = |name: &str| {
            path(name).with_context(|| format!("{name} is not set; run this through cargo"))
        };
        let feature = |name: &str| env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
        let out_dir = need("OUT_DIR")?;
        Ok(Config {
            options: Options {
                openmp: feature("OPENMP"),
                native: feature("NATIVE"),
                cuda: feature("CUDA"),
                vulkan: feature("VULKAN"),
                metal: feature("METAL"),
                rpc: feature("RPC"),
                target: env::var("TARGET").context("TARGET is not set; run this through cargo")?,
            },
            server: feature("SERVER"),
            package: need("CARGO_MANIFEST_DIR")?,
            target_dir: target_dir(&out_dir)?,
            out_dir,
            source_dir: path(source::SOURCE_DIR_VAR),
            cache: source::cache_dir(path("XDG_CACHE_HOME"), path("HOME")),
            jobs: env::var("NUM_JOBS")
                .ok()
                .and_then(|n| n.parse().ok())
                .unwrap_or(1),
        })
    }
}

/// Cargo's target folder: the nearest one above `inside` that holds `CACHEDIR.TAG`.
pub fn target_dir(inside: &Path) -> Result<PathBuf> {
    inside
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").is_file())
        .map(Path::to_owned)
        .with_context(|| {
            format!(
                "no cargo target folder (one with CACHEDIR.TAG) above {}",
                inside.display()
            )
        })
}
