//! The unpatched reference build that tests compare with.

use std::path::PathBuf;

use anyhow::Result;

use crate::cmake;
use crate::config::Options;
use crate::patch::Series;
use crate::progress::Step;
use crate::source::Pin;
use crate::tree::Tree;
use crate::{paths, vendor};

/// Builds `<target>/llama-cpp/stock-<key>/{src,build}` from the pristine source with the
/// options of the patched build, and the program of `tests/reference` on it, whose path it
/// returns.
pub fn build(jobs: usize) -> Result<PathBuf> {
    let pin = Pin::read(&paths::vendor())?;
    let source = vendor::verify(&pin)?;
    let options = Options::cpu(env!("XTASK_TARGET"));
    let _step = Step::spinner("building the unpatched reference");
    let tree = Tree::lock(&paths::target()?, "stock-", &source, &options)?;
    tree.stamp(&source, &Series::default())?;
    cmake::build(&tree, &options, &pin, &["llama"], jobs)?;

    let build = tree.root.join("reference");
    let mut cmd = cmake::command(&tree, "cmake");
    cmd.arg("-S").arg(paths::root().join("tests/reference"));
    cmd.arg("-B").arg(&build);
    cmd.arg("-DCMAKE_BUILD_TYPE=Release");
    cmd.arg(format!("-DLLAMA_SRC={}", tree.src().display()));
    cmd.arg(format!("-DLLAMA_BUILD={}", tree.build().display()));
    cmake::run(
        cmd,
        &tree.log(),
        "cmake could not configure tests/reference",
    )?;
    let mut cmd = cmake::command(&tree, "cmake");
    cmd.arg("--build")
        .arg(&build)
        .args(["--parallel", &jobs.to_string()]);
    cmake::run(cmd, &tree.log(), "tests/reference does not compile")?;
    Ok(build.join("rys-reference"))
}
