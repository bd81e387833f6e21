//! `cargo xtask patches export`: the commits of the tree as the series.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::git::Git;
use super::scratch::{EXPORTED, PRISTINE};
use super::{AUTHOR, DATE};
use crate::patch::{Patch, Place, Series, patch_files, read_from};
use crate::paths;
use crate::source::{Pin, write_atomic};
use crate::vendor;

/// Writes the series; files that stay the same are not touched.
pub fn run(tree: &Path) -> Result<()> {
    let git = Git::open(tree)?;
    ensure!(
        git.run(&["status", "--porcelain"])?.is_empty(),
        "{} has changes that are not committed",
        tree.display()
    );
    let root = vendor::verify(&Pin::read(&paths::vendor())?)?.root;
    let new = patches(&git)?;
    check(&git, &new, &root)?;

    let dir = paths::patches();
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut changed = 0;
    for (name, bytes) in &new {
        if fs::read(dir.join(name)).ok().as_ref() != Some(bytes) {
            write_atomic(&dir.join(name), bytes)?;
            changed += 1;
        }
    }
    let series: String = new.iter().map(|(name, _)| format!("{name}\n")).collect();
    if fs::read_to_string(dir.join("series")).ok().as_ref() != Some(&series) {
        write_atomic(&dir.join("series"), series.as_bytes())?;
    }
    for name in patch_files(&dir)? {
        if !new.iter().any(|(n, _)| *n == name) {
            fs::remove_file(dir.join(&name)).with_context(|| format!("cannot remove {name}"))?;
            changed += 1;
        }
    }
    git.run(&["tag", "--force", EXPORTED])?;
    println!(
        "{}: {} patches, {changed} changed",
        dir.display(),
        new.len()
    );
    Ok(())
}

/// Name and text of a patch for each commit after the pristine one.
pub fn patches(git: &Git) -> Result<Vec<(String, Vec<u8>)>> {
    let out = tempfile::tempdir().context("cannot create a temporary folder")?;
    let to = out
        .path()
        .to_str()
        .context("the temporary folder's name is not UTF-8")?;
    git.run(&[
        "-c",
        "diff.noprefix=false",
        "-c",
        "diff.mnemonicPrefix=false",
        "-c",
        "diff.algorithm=myers",
        "format-patch",
        "--quiet",
        "--zero-commit",
        "--no-signature",
        "--no-stat",
        "--no-numbered",
        "--no-renames",
        "--full-index",
        "-U1",
        "--output-directory",
        to,
        &format!("{PRISTINE}..HEAD"),
    ])?;
    patch_files(out.path())?
        .into_iter()
        .map(|name| {
            let text = fs::read_to_string(out.path().join(&name))
                .with_context(|| format!("{name} is not UTF-8"))?;
            let text = stable(&text);
            Ok((name, text.into_bytes()))
        })
        .collect()
}

/// The same author and date whoever exports, and whenever.
fn stable(text: &str) -> String {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines: Vec<String> = head.lines().map(Into::into).collect();
    for line in lines.iter_mut().skip(1) {
        for (name, value) in [("From: ", AUTHOR), ("Date: ", DATE)] {
            if line.starts_with(name) {
                *line = format!("{name}{value}");
            }
        }
    }
    format!("{}\n\n{body}", lines.join("\n"))
}

/// The patches must apply strictly to the pristine source and give the tree's files.
fn check(git: &Git, new: &[(String, Vec<u8>)], root: &Path) -> Result<()> {
    let patches = new
        .iter()
        .map(|(name, bytes)| {
            Patch::parse(name, bytes.clone()).with_context(|| format!("commit of {name}"))
        })
        .collect::<Result<_>>()?;
    let applied = Series { patches }.apply(Place::Exact, read_from(root))?;
    let mut read = read_from(&git.tree);
    for (path, content) in &applied.files {
        ensure!(
            read(path)? == *content,
            "the patches do not reproduce {path} of {}",
            git.tree.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_and_date_are_stable() {
        let text = "From 0 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nDate: now\nSubject: [PATCH] x\n\nFrom: kept\n";
        let want = format!(
            "From 0 Mon Sep 17 00:00:00 2001\nFrom: {AUTHOR}\nDate: {DATE}\nSubject: [PATCH] x\n\nFrom: kept\n"
        );
        assert_eq!(stable(text), want);
    }
}
