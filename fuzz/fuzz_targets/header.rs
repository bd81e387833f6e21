//! Any bytes as a model: an error or a header within its bounds, and never the end of the process,
//! whatever the loader makes of it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rys::{Header, Model, ModelParams, Spec};
use tempfile::{NamedTempFile, TempPath};

/// One file for all runs, in memory where there is such a folder.
static FILE: LazyLock<TempPath> = LazyLock::new(|| {
    rys::log::set_sink(|_, _| {});
    NamedTempFile::new_in("/dev/shm")
        .or_else(|_| NamedTempFile::new())
        .expect("a temporary file")
        .into_temp_path()
});
static SPEC: LazyLock<Spec> = LazyLock::new(|| "1,2".parse().expect("a spec"));

fuzz_target!(|bytes: &[u8]| {
    std::fs::write(&*FILE, bytes).expect("the file takes the bytes");
    match Header::read(&*FILE) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(header) => {
            assert!((1..=512).contains(&header.block_count));
            assert!(header.n_layer() <= 512);
            match header.plan(&SPEC) {
                Ok(plan) => assert_eq!(plan.as_slice().len(), header.n_layer() as usize + 1),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    // the loader itself, which asserts on much that a header can say
    for params in [
        ModelParams::new().vocab_only(true),
        ModelParams::new().no_alloc(true),
    ] {
        if let Err(error) = Model::load(&*FILE, params) {
            assert!(!error.to_string().is_empty());
        }
    }
});
