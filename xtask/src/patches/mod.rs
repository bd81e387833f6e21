//! `cargo xtask patches`: the series as a git tree, and the proof that it is sound.

mod export;
mod git;
mod hooks;
mod scratch;
mod verify;

use std::path::PathBuf;

use anyhow::Result;

use crate::patch::HOOK;
use crate::paths;

/// Headers that every patch carries.
const TRAILERS: [&str; 6] = [
    "Why",
    "Intent",
    "Anchor",
    "Invariant",
    "Obsolete-when",
    "Test",
];
const AUTHOR: &str = "RYS developers <rys@example.com>";
const DATE: &str = "Mon, 30 Nov 2026 12:00:00 +0000";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a git tree with one commit a patch, ready to edit
    Apply {
        /// Folder of the tree [default: patches-tree in the target folder]
        #[arg(long, value_name = "DIR")]
        tree: Option<PathBuf>,
        /// Replace a tree that holds work
        #[arg(long)]
        force: bool,
        /// Go on after the commit that replaces a patch which did not apply
        #[arg(long = "continue", conflicts_with = "force")]
        go_on: bool,
    },
    /// Write the commits of the tree to the series
    Export {
        /// Folder of the tree [default: patches-tree in the target folder]
        #[arg(long, value_name = "DIR")]
        tree: Option<PathBuf>,
    },
    /// Check series, headers, tags, anchors, strict application and UPSTREAM_SYNC.md
    Verify,
}

pub fn run(command: Command) -> Result<()> {
    let place = |tree: Option<PathBuf>| -> Result<PathBuf> {
        match tree {
            Some(tree) => Ok(tree),
            None => Ok(paths::target()?.join("patches-tree")),
        }
    };
    match command {
        Command::Apply { tree, force, go_on } => scratch::apply(&place(tree)?, force, go_on),
        Command::Export { tree } => export::run(&place(tree)?),
        Command::Verify => verify::run(),
    }
}
