//! Fixtures of the integration tests: models, their expanded twins, and jobs that run on the patched
//! library and on an unpatched llama.cpp alike.

#![allow(missing_docs, reason = "nobody but the tests of this package uses it")]

pub mod archs;
mod draft;
pub mod expand;
pub mod gguf;
pub mod graph;
pub mod job;
pub mod kept;
pub mod log;
pub mod patched;
pub mod real;
pub mod reference;
pub mod server;
pub mod spec;
pub mod state;
pub mod synth;

/// Folder for the files of these tests, inside cargo's target folder.
pub fn scratch() -> tempfile::TempDir {
    log::install();
    tempfile::Builder::new()
        .prefix("rys-tests-")
        .tempdir()
        .expect("cannot make a temporary folder")
}
