//! The measured program, on an unpatched and on a patched llama.cpp.

use std::path::PathBuf;

use anyhow::Result;

use crate::config::Options;
use crate::cpp;

/// One source, compiled for each library.
#[derive(Debug)]
pub struct Programs {
    pub stock: PathBuf,
    pub patched: PathBuf,
}

impl Programs {
    /// With the options that users get.
    pub fn timed() -> Result<Programs> {
        Programs::build(&Options::cpu(env!("XTASK_TARGET")))
    }

    /// Without threads and without instructions that depend on this machine's CPU, so that
    /// counts repeat and valgrind knows every instruction.
    pub fn counted() -> Result<Programs> {
        Programs::build(&Options {
            openmp: false,
            native: false,
            ..Options::cpu(env!("XTASK_TARGET"))
        })
    }

    fn build(options: &Options) -> Result<Programs> {
        Ok(Programs {
            stock: cpp::runner(false, options)?,
            patched: cpp::runner(true, options)?,
        })
    }
}
