//! Where the llama.cpp source comes from, and the proof that it is what it claims to be.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

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

/// One file of a source tree; `path` is relative and uses `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub size: u64,
    pub sha256: String,
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
    let known: std::collections::HashSet<&str> = files.iter().map(|e| e.path.as_str()).collect();
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

/// Unpacks the llama.cpp tree of a verified archive to `dest` and writes its manifest:
/// all or nothing. `progress` is told the number of bytes of the archive read so far.
pub fn unpack(archive: &Path, pin: &Pin, dest: &Path, progress: &mut dyn FnMut(u64)) -> Result<()> {
    verify_archive(archive, pin)?;
    let stage = Stage::beside(dest)?;
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

/// A folder that replaces its destination only when it is complete.
struct Stage {
    path: PathBuf,
}

impl Stage {
    fn beside(dest: &Path) -> Result<Stage> {
        let name = dest
            .file_name()
            .context("a source tree needs a name")?
            .to_string_lossy();
        let path = dest.with_file_name(format!(".{name}.new-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Stage { path })
    }

    fn publish(self, dest: &Path, files: &[Entry]) -> Result<()> {
        let manifest = manifest_path(dest)?;
        let old = dest.with_file_name(format!(
            "{}.old",
            self.path.file_name().unwrap_or_default().to_string_lossy()
        ));
        if dest.exists() {
            fs::rename(dest, &old)?;
        }
        fs::rename(&self.path, dest)?;
        write_atomic(&manifest, format_manifest(files).as_bytes())?;
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        Ok(())
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

/// Writes `path` so that it holds either its old bytes or all of `bytes`.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path
        .file_name()
        .context("a file needs a name")?
        .to_string_lossy();
    let tmp = path.with_file_name(format!("{name}.new-{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        fs::File::create(&tmp)?.write_all(bytes)?;
        fs::rename(&tmp, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// SHA-256 of a file, in lower-case hexadecimal.
pub fn sha256_file(path: &Path) -> Result<String> {
    let open = || -> std::io::Result<String> {
        let mut file = fs::File::open(path)?;
        let mut hash = Sha256::new();
        let mut buf = vec![0; 1 << 18];
        loop {
            match file.read(&mut buf)? {
                0 => return Ok(hex(&hash.finalize())),
                n => hash.update(&buf[..n]),
            }
        }
    };
    open().with_context(|| format!("cannot read {}", path.display()))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The user's cache folder of this project: `$XDG_CACHE_HOME/rys` or `~/.cache/rys`.
pub fn cache_dir(xdg_cache_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    xdg_cache_home
        .filter(|p| p.is_absolute())
        .or_else(|| home.map(|h| h.join(".cache")))
        .map(|c| c.join("rys"))
}
