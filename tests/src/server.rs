//! The program `rys-server` in tests.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Names the program.
pub const VAR: &str = "RYS_SERVER";

/// Path of the program.
pub fn program() -> PathBuf {
    let path = env::var_os(VAR).map(PathBuf::from).unwrap_or_else(|| {
        panic!(
            "{VAR} is not set: it names the program rys-server; run `cargo xtask test`, which \
             builds it and sets it"
        )
    });
    assert!(
        path.is_file(),
        "no {}; run `cargo xtask test`, which builds it",
        path.display()
    );
    path
}

/// Runs the program to its end, in `dir`, with nothing of llama.cpp in its environment but `vars`.
pub fn run(dir: &std::path::Path, args: &[&str], vars: &[(&str, &str)]) -> Output {
    let mut cmd = Command::new(program());
    xtask::server::isolate(&mut cmd);
    cmd.current_dir(dir)
        .args(args)
        .envs(vars.iter().copied())
        .stdin(Stdio::null());
    cmd.output().expect("cannot start rys-server")
}
