//! The C++ tree that every profile and crate shares: `<target>/llama-cpp/<key>/{src,build}`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use sha2::{Digest, Sha256};

use crate::config::Options;
use crate::patch::{Applied, Place, Series, read_from};
use crate::source::{Source, hex, walk};

/// A locked tree; nobody else changes it while this value lives.
pub struct Tree {
    pub root: PathBuf,
    _lock: fs::File,
}

impl Tree {
    /// Locks the tree of this source and these options, waiting for another build to end.
    /// `prefix` keeps the patched tree and the stock one apart.
    pub fn lock(
        target_dir: &Path,
        prefix: &str,
        source: &Source,
        options: &Options,
    ) -> Result<Tree> {
        let parent = target_dir.join("llama-cpp");
        fs::create_dir_all(&parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        let name = format!("{prefix}{}", key(source, options));
        let path = parent.join(format!("{name}.lock"));
        let open = || -> std::io::Result<fs::File> {
            let file = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)?;
            file.lock()?;
            Ok(file)
        };
        let lock = open().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Tree {
            root: parent.join(name),
            _lock: lock,
        })
    }

    pub fn src(&self) -> PathBuf {
        self.root.join("src")
    }

    pub fn build(&self) -> PathBuf {
        self.root.join("build")
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("build.log")
    }

    /// Makes `src` the source with the series applied and returns the notes about offsets.
    /// Only files whose content differs are written, so a later build redoes little.
    pub fn stamp(&self, source: &Source, series: &Series) -> Result<Vec<String>> {
        let applied = apply(source, series)?;
        let src = self.src();
        let mut known = HashSet::new();
        for entry in &source.files {
            // Vocabularies and test models: most of the tree's bytes, and no part of a build.
            if entry.path.ends_with(".gguf") || applied.files.contains_key(&entry.path) {
                continue;
            }
            known.insert(entry.path.as_str());
            let bytes = || fs::read(source.root.join(&entry.path));
            update(
                &src.join(&entry.path),
                &bytes().with_context(|| format!("cannot read {}", entry.path))?,
            )?;
        }
        for (path, content) in &applied.files {
            if let Some(bytes) = content {
                known.insert(path);
                update(&src.join(path), bytes)?;
            }
        }
        for path in walk(&src)? {
            if !known.contains(path.as_str()) {
                fs::remove_file(src.join(&path))
                    .with_context(|| format!("cannot remove {path}"))?;
            }
        }
        verify(&src, &applied)?;
        Ok(applied.notes)
    }
}

/// Applies the series to the source: exactly at the pin, with noted offsets elsewhere.
pub fn apply(source: &Source, series: &Series) -> Result<Applied> {
    let place = if source.pinned {
        Place::Exact
    } else {
        Place::OffsetAllowed
    };
    series.apply(place, read_from(&source.root))
}

/// Reads back what the series should have produced.
fn verify(src: &Path, applied: &Applied) -> Result<()> {
    let mut read = read_from(src);
    for (path, want) in &applied.files {
        if read(path)? != *want {
            return Err(anyhow!(
                "{} is not what the patches make of it; build again",
                src.join(path).display()
            ));
        }
    }
    Ok(())
}

fn update(path: &Path, bytes: &[u8]) -> Result<()> {
    let same = fs::metadata(path).is_ok_and(|m| m.len() == bytes.len() as u64)
        && fs::read(path).is_ok_and(|old| old == bytes);
    if same {
        return Ok(());
    }
    let write = || -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Short name of a source and its options. Patches are left out: a changed series updates
/// the same tree.
fn key(source: &Source, options: &Options) -> String {
    hex(&Sha256::digest(format!("{}\n{options:?}", source.id)))[..12].to_owned()
}
