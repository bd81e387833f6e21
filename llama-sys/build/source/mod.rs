//! Where the llama.cpp source comes from, and the proof that it is what it claims to be.

mod archive;
mod files;
mod manifest;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

pub use archive::{import, unpack};
pub use files::{hex, sha256_file, write_atomic};
pub use manifest::{Entry, walk};
use manifest::{manifest_digest, manifest_path, parse_manifest, scan};

/// Environment variable naming a llama.cpp checkout to build instead of the pinned tree.
pub const SOURCE_DIR_VAR: &str = "LLAMA_SYS_SOURCE_DIR";
const REPAIR: &str = "run `cargo xtask vendor` to restore it";

/// `vendor/UPSTREAM.toml`.
#[derive(Debug, Clone, Deserialize)]
pub struct Pin {
    pub package: Package,
    pub upstream: Upstream,
}

/// The source distribution that carries llama.cpp.
#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub file: String,
    pub sha256: String,
    pub tree: String,
}

/// The llama.cpp tree inside the source distribution.
#[derive(Debug, Clone, Deserialize)]
pub struct Upstream {
    pub commit: String,
    #[serde(rename = "build-number")]
    pub build_number: u32,
    #[serde(rename = "manifest-sha256")]
    pub manifest_sha256: String,
}

impl Pin {
    /// Reads `UPSTREAM.toml` from the folder `vendor`.
    pub fn read(vendor: &Path) -> Result<Pin> {
        let path = vendor.join("UPSTREAM.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
    }
}

/// A source tree ready to be copied.
#[derive(Debug, Clone)]
pub struct Source {
    pub root: PathBuf,
    pub files: Vec<Entry>,
    /// The tree is byte for byte the pinned one, so patches apply without offsets.
    pub pinned: bool,
    /// Names the tree in the key of the shared build.
    pub id: String,
}

/// Finds the source: `source_dir` (the user's own), then `vendor/llama.cpp`, then the
/// downloaded archive in `cache`, unpacked below `scratch`. Every file is checked.
pub fn find(
    source_dir: Option<&Path>,
    vendor: &Path,
    cache: Option<&Path>,
    scratch: &Path,
) -> Result<Source> {
    let pin = Pin::read(vendor)?;
    if let Some(dir) = source_dir {
        return own_checkout(dir, &pin)
            .with_context(|| format!("{SOURCE_DIR_VAR}={} cannot be used", dir.display()));
    }
    let tree = vendor.join("llama.cpp");
    if tree.exists() || manifest_path(&tree)?.exists() {
        return verified(&tree, &pin, REPAIR);
    }
    let archive = cache.map(|c| c.join("downloads").join(&pin.package.file));
    match archive {
        Some(archive) if archive.is_file() => {
            let tree = scratch
                .join(format!("upstream-{}", &pin.package.sha256[..12]))
                .join("llama.cpp");
            if let Ok(source) = verified(&tree, &pin, REPAIR) {
                return Ok(source);
            }
            unpack(&archive, &pin, &tree, &mut |_| ())?;
            verified(&tree, &pin, REPAIR)
        }
        _ => bail!(
            "the llama.cpp source is missing: no {} and no {} in the cache folder; \
             run `cargo xtask vendor` in a clone of this repository, \
             or set {SOURCE_DIR_VAR} to a llama.cpp checkout",
            tree.display(),
            pin.package.file,
        ),
    }
}

fn own_checkout(dir: &Path, pin: &Pin) -> Result<Source> {
    ensure!(
        dir.join("include/llama.h").is_file() && dir.join("CMakeLists.txt").is_file(),
        "it is not a llama.cpp checkout (no include/llama.h)"
    );
    let root = dir.canonicalize()?;
    let files = scan(&root)?;
    let pinned = manifest_digest(&files) == pin.upstream.manifest_sha256;
    let id = if pinned {
        pin.package.sha256.clone()
    } else {
        root.display().to_string()
    };
    Ok(Source {
        root,
        files,
        pinned,
        id,
    })
}

/// Checks `tree` against the manifest beside it and the manifest against the pin.
/// `repair` ends every message about a broken tree.
pub fn verified(tree: &Path, pin: &Pin, repair: &str) -> Result<Source> {
    let manifest = manifest_path(tree)?;
    let text = fs::read_to_string(&manifest)
        .map_err(|e| anyhow!("cannot read {}: {e}; {repair}", manifest.display()))?;
    let files = parse_manifest(&text)
        .map_err(|e| anyhow!("{} is damaged: {e}; {repair}", manifest.display()))?;
    for entry in &files {
        let path = tree.join(&entry.path);
        let say = |what: &str| anyhow!("{} {what}; {repair}", path.display());
        let Ok(meta) = fs::symlink_metadata(&path) else {
            return Err(say("is missing"));
        };
        if !meta.is_file() || meta.len() < entry.size {
            return Err(say("is truncated"));
        }
        if meta.len() != entry.size || sha256_file(&path)? != entry.sha256 {
            return Err(say("was edited"));
        }
    }
    let known: HashSet<&str> = files.iter().map(|e| e.path.as_str()).collect();
    if let Some(extra) = walk(tree)?
        .into_iter()
        .find(|p| !known.contains(p.as_str()))
    {
        bail!("{} was added; {repair}", tree.join(extra).display());
    }
    let digest = manifest_digest(&files);
    let pinned = digest == pin.upstream.manifest_sha256;
    let id = if pinned {
        pin.package.sha256.clone()
    } else {
        digest
    };
    Ok(Source {
        root: tree.to_owned(),
        files,
        pinned,
        id,
    })
}

/// The user's cache folder of this project: `$XDG_CACHE_HOME/rys` or `~/.cache/rys`.
pub fn cache_dir(xdg_cache_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    xdg_cache_home
        .filter(|p| p.is_absolute())
        .or_else(|| home.map(|h| h.join(".cache")))
        .map(|c| c.join("rys"))
}
