//! `cargo xtask test`: the set-up if needed, then every test.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{cpp, models, paths, program, setup};

/// Options of the tests.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Arguments for `cargo nextest run` or `cargo test`
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Runs the tests with the environment that they read.
pub fn run(args: &Args) -> Result<()> {
    setup::run()?;
    let vars = [
        ("RYS_REFERENCE", cpp::reference()?),
        ("RYS_MODELS", models::folder()?),
        ("RYS_TOOLS", cpp::tools()?),
        ("RYS_SERVER", program::build(false)?),
    ];
    let cargo = |words: &[&str], rest: &[String]| -> Result<()> {
        let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut cmd = Command::new(program);
        cmd.current_dir(paths::root())
            .args(words)
            .args(rest)
            .envs(vars.clone());
        let status = cmd.status().context("cannot start cargo")?;
        ensure!(
            status.success(),
            "`cargo {}` failed ({status})",
            words.join(" ")
        );
        Ok(())
    };
    if !has_nextest() {
        // Runs the doc tests too.
        return cargo(&["test", "--workspace", "--no-fail-fast"], &args.rest);
    }
    let tests = cargo(
        &["nextest", "run", "--workspace", "--no-fail-fast"],
        &args.rest,
    );
    if args.rest.is_empty() {
        // nextest leaves them out.
        tests.and(cargo(
            &["test", "--workspace", "--doc", "--no-fail-fast"],
            &[],
        ))
    } else {
        tests
    }
}

fn has_nextest() -> bool {
    Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}
