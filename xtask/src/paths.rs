//! Folders of this repository and of the user.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{config, source};

/// The repository.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// The folder `vendor`.
pub fn vendor() -> PathBuf {
    root().join("vendor")
}

/// The folder `patches`.
pub fn patches() -> PathBuf {
    root().join("patches")
}

/// Cargo's target folder, found from this program's own place.
pub fn target() -> Result<PathBuf> {
    config::target_dir(&env::current_exe().context("cannot find this program's own path")?)
}

/// The user's own llama.cpp checkout, to build in place of the pinned source.
pub fn own_source() -> Option<PathBuf> {
    var(source::SOURCE_DIR_VAR)
}

fn var(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
}

/// The user's cache folder of this project.
pub fn cache() -> Result<PathBuf> {
    source::cache_dir(var("XDG_CACHE_HOME"), var("HOME"))
        .context("no cache folder: set HOME or XDG_CACHE_HOME")
}
