//! Makes a source tree out of the downloaded archive or another folder: all or nothing.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::files::{sha256_file, write_atomic};
use super::manifest::{Entry, format_manifest, manifest_digest, manifest_path, scan, walk};
use super::{Pin, REPAIR, verified};

/// Unpacks the llama.cpp tree of a verified archive to `dest` and writes its manifest:
/// all or nothing. `progress` is told the number of bytes of the archive read so far.
pub fn unpack(archive: &Path, pin: &Pin, dest: &Path, progress: &mut dyn FnMut(u64)) -> Result<()> {
    verify_archive(archive, pin)?;
    let stage = Stage::beside(dest)?;
    // Another build may have finished the same tree while this one waited for the lock.
    if verified(dest, pin, REPAIR).is_ok_and(|source| source.pinned) {
        return Ok(());
    }
    let reader = Counted {
        inner: fs::File::open(archive)?,
        read: 0,
        progress,
    };
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(reader));
    for entry in tar.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Ok(rel) = path.strip_prefix(&pin.package.tree) else {
            continue;
        };
        // The archive carries the pointer file of a git submodule whose repository is not there.
        if rel == Path::new(".git") || rel.as_os_str().is_empty() {
            continue;
        }
        ensure!(
            rel.components()
                .all(|c| matches!(c, std::path::Component::Normal(_))),
            "unsafe path {} in {}",
            path.display(),
            archive.display()
        );
        let to = stage.path.join(rel);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        entry.unpack(&to)?;
    }
    let files = scan(&stage.path)?;
    ensure!(
        manifest_digest(&files) == pin.upstream.manifest_sha256,
        "{} does not hold the tree that UPSTREAM.toml pins: manifest-sha256 is {} ({} files)",
        archive.display(),
        manifest_digest(&files),
        files.len()
    );
    stage.publish(dest, &files)
}

/// Copies a checkout of the user's own to `dest` with a manifest: all or nothing.
pub fn import(dir: &Path, dest: &Path) -> Result<()> {
    ensure!(
        dir.join("include/llama.h").is_file(),
        "{} is not a llama.cpp checkout (no include/llama.h)",
        dir.display()
    );
    let stage = Stage::beside(dest)?;
    for path in walk(dir)? {
        let to = stage.path.join(&path);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(dir.join(&path), &to).with_context(|| format!("cannot copy {path}"))?;
    }
    let files = scan(&stage.path)?;
    stage.publish(dest, &files)
}

/// Checks the SHA-256 of the archive.
pub fn verify_archive(archive: &Path, pin: &Pin) -> Result<()> {
    let found = sha256_file(archive)?;
    ensure!(
        found == pin.package.sha256,
        "{} is truncated or edited: its sha256 is {found}, UPSTREAM.toml says {}; {REPAIR}",
        archive.display(),
        pin.package.sha256
    );
    Ok(())
}

/// A folder that replaces its destination only when it is complete. Holds a lock, so that two
/// builds do not replace the same tree.
struct Stage {
    path: PathBuf,
    _lock: fs::File,
}

impl Stage {
    fn beside(dest: &Path) -> Result<Stage> {
        let parent = dest
            .parent()
            .context("a source tree needs a parent folder")?;
        let name = dest
            .file_name()
            .context("a source tree needs a name")?
            .to_string_lossy();
        let path = dest.with_file_name(format!(".{name}.new"));
        let open = || -> std::io::Result<fs::File> {
            fs::create_dir_all(parent)?;
            let lock = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(dest.with_file_name(format!(".{name}.lock")))?;
            lock.lock()?;
            // What an interrupted run left behind.
            if path.exists() {
                fs::remove_dir_all(&path)?;
            }
            fs::create_dir(&path)?;
            Ok(lock)
        };
        let lock = open().with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Stage { path, _lock: lock })
    }

    fn publish(self, dest: &Path, files: &[Entry]) -> Result<()> {
        if dest.exists() {
            fs::remove_dir_all(dest)
                .with_context(|| format!("cannot remove {}", dest.display()))?;
        }
        fs::rename(&self.path, dest)?;
        write_atomic(&manifest_path(dest)?, format_manifest(files).as_bytes())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

struct Counted<'a, R> {
    inner: R,
    read: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.read += n as u64;
        (self.progress)(self.read);
        Ok(n)
    }
}
