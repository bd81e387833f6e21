//! The C++ builds, made ahead of cargo so that their progress shows.

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::Result;

use crate::config::Options;
use crate::patch::Series;
use crate::progress::Step;
use crate::source::{self, Pin, Source};
use crate::tree::Tree;
use crate::{cmake, paths};

/// Folder prefix of unpatched trees.
const STOCK: &str = "stock-";

const TOOLS: &[&str] = &[
    "llama-bench",
    "llama-completion",
    "llama-cvector-generator",
    "llama-diffusion-cli",
    "llama-export-lora",
    "llama-finetune",
    "llama-perplexity",
    "llama-speculative",
    "llama-tokenize",
];

/// Builds the tree that the build script of `llama-sys` uses with its default features and
/// `server`; a later `cargo build` finds it done.
pub fn patched() -> Result<()> {
    let series = Series::read(&paths::patches())?;
    build("building llama.cpp", "", &series, cmake::SERVER).map(|_| ())
}

/// Builds the tools that the tests run, in the tree of [`patched`], and returns their folder.
pub fn tools() -> Result<PathBuf> {
    let series = Series::read(&paths::patches())?;
    let tree = build("building llama.cpp's tools", "", &series, TOOLS)?;
    Ok(tree.build().join("bin"))
}

/// Builds `<target>/llama-cpp/stock-<key>/{src,build}` from the pristine source with the
/// options of the patched build, and the program of `tests/reference` on it, whose path it
/// returns.
pub fn reference() -> Result<PathBuf> {
    let what = "building the unpatched reference";
    let tree = build(what, STOCK, &Series::default(), cmake::LIBRARY)?;
    program(&tree, "tests/reference", "rys-reference", &[])
}

/// Builds the program of `xtask/runner` on the library with these options, patched or not, and
/// returns its path.
pub fn runner(patched: bool, options: &Options) -> Result<PathBuf> {
    let (kind, prefix, series) = if patched {
        ("patched", "", Series::read(&paths::patches())?)
    } else {
        ("unpatched", STOCK, Series::default())
    };
    let portable = if options.native { "" } else { " portable" };
    let what = format!("building the {kind}{portable} library");
    let tree = build_with(&what, prefix, &series, cmake::LIBRARY, options)?;
    let switches = [("RYS_PATCHED", patched), ("RYS_OPENMP", options.openmp)];
    program(&tree, "xtask/runner", "rys-bench-runner", &switches)
}

/// Builds the program `name` of the repository's folder `dir`, which has a `CMakeLists.txt`, on
/// the library of `tree`.
fn program(tree: &Tree, dir: &str, name: &str, switches: &[(&str, bool)]) -> Result<PathBuf> {
    let build = tree
        .root
        .join(Path::new(dir).file_name().unwrap_or_default());
    let mut cmd = cmake::command(tree, "cmake");
    cmd.arg("-S").arg(paths::root().join(dir));
    cmd.arg("-B").arg(&build);
    cmd.arg("-DCMAKE_BUILD_TYPE=Release");
    cmd.arg(format!("-DLLAMA_SRC={}", tree.src().display()));
    cmd.arg(format!("-DLLAMA_BUILD={}", tree.build().display()));
    for (name, on) in switches {
        cmd.arg(format!("-D{name}={}", if *on { "ON" } else { "OFF" }));
    }
    let failure = format!("cmake could not configure {dir}");
    cmake::run(cmd, &tree.log(), &failure)?;
    let mut cmd = cmake::command(tree, "cmake");
    cmd.arg("--build")
        .arg(&build)
        .args(["--parallel", &jobs().to_string()]);
    let compile = || cmake::run(cmd, &tree.log(), &format!("{dir} does not compile"));
    Step::build(&format!("building {dir}"), &tree.log(), compile)?;
    Ok(build.join(name))
}

fn build(what: &str, prefix: &str, series: &Series, targets: &[&str]) -> Result<Tree> {
    let options = Options::cpu(env!("XTASK_TARGET"));
    build_with(what, prefix, series, targets, &options)
}

fn build_with(
    what: &str,
    prefix: &str,
    series: &Series,
    targets: &[&str],
    options: &Options,
) -> Result<Tree> {
    let pin = Pin::read(&paths::vendor())?;
    let source = source()?;
    let pin = source.pinned.then_some(&pin);
    let tree = Tree::lock(&paths::target()?, prefix, &source, options)?;
    // Its notes about offsets come again as warnings of the build script.
    tree.stamp(&source, series)?;
    Step::build(what, &tree.log(), || {
        cmake::build(&tree, options, pin, targets, jobs())
    })?;
    Ok(tree)
}

/// The same source as the build script's.
fn source() -> Result<Source> {
    let scratch = paths::target()?.join("llama-cpp");
    source::find(
        paths::own_source().as_deref(),
        &paths::vendor(),
        Some(&paths::cache()?),
        &scratch,
    )
}

fn jobs() -> usize {
    available_parallelism().map_or(1, usize::from)
}
