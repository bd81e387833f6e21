//! Hashing and atomic writing of single files.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

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
