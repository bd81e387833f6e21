//! Reads the patch series and applies it in memory: the one apply code path of the build
//! script and `cargo xtask patches`.
//!
//! A hunk fits only where every one of its old lines is. It must be at the line its header
//! names, unless the caller allows offsets; then the place must be unambiguous.

mod apply;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Tag of everything that the series adds to upstream's files.
pub const HOOK: &str = "opencoti-hook: rys-layer-dup";

/// The patches of a folder, in the order of its file `series`.
#[derive(Debug, Default)]
pub struct Series {
    pub patches: Vec<Patch>,
}

/// One file of the series.
#[derive(Debug)]
pub struct Patch {
    /// File name, for example `0001-layer-plan.patch`.
    pub name: String,
    /// Everything before the first `diff --git`.
    pub header: String,
    pub files: Vec<FilePatch>,
    pub bytes: Vec<u8>,
}

/// The change of one file.
#[derive(Debug)]
pub struct FilePatch {
    pub path: String,
    pub change: Change,
    pub hunks: Vec<Hunk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Create,
    Modify,
    Delete,
}

/// Lines keep their `\n`; `old_start` is one-based, as in the header.
#[derive(Debug)]
pub struct Hunk {
    pub old_start: usize,
    pub new_start: usize,
    pub lines: Vec<(Side, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Both,
    Old,
    New,
}

/// Whether hunks must be exactly where their headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Exact,
    OffsetAllowed,
}

/// Result of applying a series.
#[derive(Debug, Default)]
pub struct Applied {
    /// New content of every file the series touches; `None` for a deleted one.
    pub files: BTreeMap<String, Option<Vec<u8>>>,
    /// One line for every hunk that applied at an offset.
    pub notes: Vec<String>,
}

impl Series {
    /// Reads `dir/series` and the patches it lists. A missing `series` in a folder without
    /// patches is an empty series.
    pub fn read(dir: &Path) -> Result<Series> {
        let listed: Vec<String> = match fs::read_to_string(dir.join("series")) {
            Ok(text) => text
                .lines()
                .map(str::trim)
                .filter(|l| !l.is_empty() && !l.starts_with('#'))
                .map(Into::into)
                .collect(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => {
                return Err(e)
                    .with_context(|| format!("cannot read {}", dir.join("series").display()));
            }
        };
        for name in patch_files(dir)? {
            ensure!(
                listed.contains(&name),
                "{} is not listed in series",
                dir.join(name).display()
            );
        }
        let patches = listed
            .iter()
            .map(|name| {
                let path = dir.join(name);
                let bytes = fs::read(&path).with_context(|| {
                    format!("cannot read {} (listed in series)", path.display())
                })?;
                Patch::parse(name, bytes)
                    .with_context(|| format!("{} is not a valid patch", path.display()))
            })
            .collect::<Result<_>>()?;
        Ok(Series { patches })
    }

    /// Applies every patch in order. `read` gives the pristine content of a file, `None` if
    /// there is none.
    pub fn apply(
        &self,
        place: Place,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>>,
    ) -> Result<Applied> {
        let mut applied = Applied::default();
        for patch in &self.patches {
            patch.apply_to(place, &mut applied, &mut read)?;
        }
        Ok(applied)
    }
}

/// Names of the `*.patch` files in `dir`, sorted.
pub fn patch_files(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    match fs::read_dir(dir) {
        Ok(items) => {
            for item in items {
                let name = item?.file_name().to_string_lossy().into_owned();
                if Path::new(&name).extension().is_some_and(|e| e == "patch") {
                    names.push(name);
                }
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (),
        Err(e) => return Err(e).with_context(|| format!("cannot list {}", dir.display())),
    }
    names.sort();
    Ok(names)
}

/// Reads a file of a source tree for [`Series::apply`].
pub fn read_from(root: &Path) -> impl FnMut(&str) -> Result<Option<Vec<u8>>> {
    let root: PathBuf = root.to_owned();
    move |path| match fs::read(root.join(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", root.join(path).display())),
    }
}

impl Patch {
    /// Applies this patch on top of `applied`.
    pub fn apply_to(
        &self,
        place: Place,
        applied: &mut Applied,
        read: &mut impl FnMut(&str) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        for file in &self.files {
            let old = match applied.files.get(&file.path) {
                Some(content) => content.clone(),
                None => read(&file.path)?,
            };
            let new = file
                .apply(old.as_deref(), place, &mut applied.notes)
                .with_context(|| format!("{} does not apply to {}", self.name, file.path))?;
            applied.files.insert(file.path.clone(), new);
        }
        Ok(())
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().to_owned()
}
