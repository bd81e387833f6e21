//! `cargo xtask demo`.

use anyhow::{Result, bail};

/// Options of the demo.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the demo.
pub fn run(_args: &Args) -> Result<()> {
    bail!("not built yet")
}
