//! Builds `rys-server`.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::progress::Step;
use crate::{cpp, paths};

/// Builds `rys-server` and returns its path; quick when nothing has changed.
pub fn build(release: bool) -> Result<PathBuf> {
    cpp::patched()?;
    let target = paths::target()?;
    let (profile, folder) = if release {
        ("release", "release")
    } else {
        ("dev", "debug")
    };
    let _step = Step::spinner("building rys-server");
    let out = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(paths::root())
        .args(["build", "--package", "rys-server", "--profile", profile])
        .arg("--target-dir")
        .arg(&target)
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&out.stderr);
    let errors = &text[text.find("error").unwrap_or(0)..];
    ensure!(out.status.success(), "rys-server does not build:\n{errors}");
    let file = format!("rys-server{}", env::consts::EXE_SUFFIX);
    Ok(target.join(folder).join(file))
}
