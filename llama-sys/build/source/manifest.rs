//! The list of a tree's files with their sizes and SHA-256 sums.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::files::{hex, sha256_file};

/// One file of a source tree; `path` is relative and uses `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub size: u64,
    pub sha256: String,
}

/// The manifest of `DIR/NAME` is `DIR/.NAME.manifest`.
pub fn manifest_path(tree: &Path) -> Result<PathBuf> {
    let name = tree
        .file_name()
        .context("a source tree needs a name")?
        .to_string_lossy();
    Ok(tree.with_file_name(format!(".{name}.manifest")))
}

fn manifest_body(files: &[Entry]) -> String {
    files
        .iter()
        .map(|e| format!("{} {} {}\n", e.sha256, e.size, e.path))
        .collect()
}

/// SHA-256 over the lines of the manifest: one number for a whole tree.
pub fn manifest_digest(files: &[Entry]) -> String {
    hex(&Sha256::digest(manifest_body(files)))
}

/// Text of a manifest: its digest and number of files, then one line a file.
pub fn format_manifest(files: &[Entry]) -> String {
    format!(
        "{} {}\n{}",
        manifest_digest(files),
        files.len(),
        manifest_body(files)
    )
}

/// Inverse of [`format_manifest`]; refuses a cut or changed text.
pub fn parse_manifest(text: &str) -> Result<Vec<Entry>> {
    let (head, body) = text.split_once('\n').context("it is empty")?;
    let files = body
        .lines()
        .map(|line| {
            let mut it = line.splitn(3, ' ');
            match (it.next(), it.next().and_then(|s| s.parse().ok()), it.next()) {
                (Some(sha256), Some(size), Some(path)) => Ok(Entry {
                    path: path.into(),
                    size,
                    sha256: sha256.into(),
                }),
                _ => bail!("bad line `{line}`"),
            }
        })
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        head == format!("{} {}", manifest_digest(&files), files.len()),
        "its lines do not match its first one"
    );
    Ok(files)
}

/// Lists and hashes every file below `root` (see [`walk`]), sorted by path.
pub fn scan(root: &Path) -> Result<Vec<Entry>> {
    walk(root)?
        .into_iter()
        .map(|path| {
            let full = root.join(&path);
            Ok(Entry {
                size: fs::metadata(&full)?.len(),
                sha256: sha256_file(&full)?,
                path,
            })
        })
        .collect()
}

/// Relative paths of every file below `root`, sorted; leaves out git's own files, build
/// folders and symbolic links.
pub fn walk(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        let here = root.join(&dir);
        for item in
            fs::read_dir(&here).with_context(|| format!("cannot list {}", here.display()))?
        {
            let item = item?;
            let name = item.file_name();
            let name = name
                .to_str()
                .with_context(|| format!("{name:?} is not UTF-8"))?;
            let path = if dir.is_empty() {
                name.to_owned()
            } else {
                format!("{dir}/{name}")
            };
            let kind = item.file_type()?;
            if name == ".git" || (kind.is_dir() && item.path().join("CMakeCache.txt").exists()) {
                continue;
            }
            if kind.is_dir() {
                todo.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
