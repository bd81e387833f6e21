//! `cargo xtask vendor`: the pinned llama.cpp source, or a checkout of the user's own.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::fetch::{Download, fetch};
use crate::paths;
use crate::progress::Step;
use crate::source::{self, Pin, Source};

/// Fills `vendor/llama.cpp`, from `from` if given.
pub fn run(from: Option<&Path>) -> Result<()> {
    let vendor = paths::vendor();
    let tree = vendor.join("llama.cpp");
    let pin = Pin::read(&vendor)?;
    if let Some(dir) = from {
        let _step = Step::spinner(&format!("copying {}", dir.display()));
        source::import(dir, &tree)?;
    } else {
        unpack_pinned(&pin, &tree)?;
    }
    let source = verify(&pin)?;
    let kind = if source.pinned {
        format!("{} {}", pin.package.name, pin.package.version)
    } else {
        "not the pinned one: patches may apply at an offset".into()
    };
    println!("{}: {} files, {kind}", tree.display(), source.files.len());
    Ok(())
}

/// Unpacks the pinned tree if there is none and the user names no other. A broken one is an error
/// that names the repair: it may be a checkout of the user's own.
pub fn ensure() -> Result<()> {
    if paths::own_source().is_some() {
        return Ok(());
    }
    let pin = Pin::read(&paths::vendor())?;
    let tree = paths::vendor().join("llama.cpp");
    if !tree.exists() {
        unpack_pinned(&pin, &tree)?;
    }
    verify(&pin).map(|_| ())
}

/// The verified tree in `vendor`.
pub fn verify(pin: &Pin) -> Result<Source> {
    source::verified(
        &paths::vendor().join("llama.cpp"),
        pin,
        "run `cargo xtask vendor` to restore it",
    )
}

fn unpack_pinned(pin: &Pin, tree: &Path) -> Result<()> {
    let archive = fetch(&Download {
        package: &pin.package.name,
        version: &pin.package.version,
        file: &pin.package.file,
        sha256: &pin.package.sha256,
        source: true,
    })?;
    let step = Step::bytes("unpacking llama.cpp", fs::metadata(&archive)?.len());
    source::unpack(&archive, pin, tree, &mut |done| step.at(done))
}
