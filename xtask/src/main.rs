//! `cargo xtask`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match xtask::run(xtask::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
