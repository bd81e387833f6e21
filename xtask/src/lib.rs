//! Set-up, patch upkeep, demo, tests and measurements of this repository: `cargo xtask`.

// The source, patch and cmake code of the build script of `llama-sys`, which uses the rest of
// it: one code path.
#[allow(dead_code)]
#[path = "../../llama-sys/build/cmake.rs"]
mod cmake;
#[allow(dead_code)]
#[path = "../../llama-sys/build/config.rs"]
mod config;
#[path = "../../llama-sys/build/patch/mod.rs"]
mod patch;
#[allow(dead_code)]
#[path = "../../llama-sys/build/source/mod.rs"]
mod source;
#[path = "../../llama-sys/build/tree.rs"]
mod tree;

mod bench;
mod cpp;
mod demo;
mod fetch;
mod models;
mod patches;
mod paths;
mod program;
mod progress;
pub mod server;
mod setup;
mod test;
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
    /// Install missing system packages, fetch the llama.cpp source and the test models
    Setup,
    /// Fetch, verify and unpack the pinned llama.cpp source to vendor/llama.cpp
    Vendor {
        /// Use this llama.cpp checkout instead of the pinned source
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
    },
    /// Work on the patch series
    #[command(subcommand)]
    Patches(patches::Command),
    /// Set up what is missing, then run every test
    Test(test::Args),
    /// Set up what is missing, then show a base model and a repeated one side by side
    Demo(demo::Args),
    /// Set up what is missing, then measure speed, memory and instructions against stock llama.cpp
    Bench(bench::Args),
}

/// Runs a parsed command line.
///
/// # Errors
/// Whatever kept the command from finishing, in words for its user.
pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Setup => setup::run(),
        Command::Vendor { from } => vendor::run(from.as_deref()),
        Command::Patches(command) => patches::run(command),
        Command::Test(args) => test::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
    }
}
