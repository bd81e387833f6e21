//! Set-up, patch upkeep, demo and tests of this repository: `cargo xtask`.
//!
//! [`models`] is also a library for tests: where a pinned model lies, verified.

// The source, patch and cmake code of the build script of `llama-sys`: one code path.
#[path = "../../llama-sys/build/cmake.rs"]
mod cmake;
#[path = "../../llama-sys/build/config.rs"]
mod config;
#[path = "../../llama-sys/build/patch.rs"]
mod patch;
#[path = "../../llama-sys/build/source.rs"]
mod source;
#[path = "../../llama-sys/build/tree.rs"]
mod tree;

mod fetch;

mod paths;
mod progress;

mod vendor;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Command line of `cargo xtask`.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Set-up, patch upkeep, demo and tests"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch, verify and unpack the pinned llama.cpp source to vendor/llama.cpp
    Vendor {
        /// Use this llama.cpp checkout instead of the pinned source
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
    },
}

/// Runs a parsed command line.
///
/// # Errors
/// Whatever kept the command from finishing, in words for its user.
pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Vendor { from } => vendor::run(from.as_deref()),
    }
}
