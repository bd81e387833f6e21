//! Configures and builds a C++ tree with cmake.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::config::Options;
use crate::source::Pin;
use crate::tree::Tree;

/// Records the arguments of the last successful configure step.
const STAMP: &str = ".rys-configured";
/// Targets of the library alone, and of everything that links.
pub const LIBRARY: &[&str] = &["llama"];
pub const SERVER: &[&str] = &[
    "llama",
    "llama-server-impl",
    "llama-cli-impl",
    "llama-completion-impl",
];
const LOG_TAIL: usize = 30;

/// Builds `targets`; configures first if the arguments changed since the last time.
/// `pin` names the commit of the source; `None` if it is another one.
pub fn build(
    tree: &Tree,
    options: &Options,
    pin: Option<&Pin>,
    targets: &[&str],
    jobs: usize,
) -> Result<()> {
    let _ = fs::remove_file(tree.log());
    let build = tree.build();
    let args = arguments(tree, options, pin);
    let stamp = build.join(STAMP);
    let toolchain = toolchain();
    let wanted = format!("{toolchain}\n{}", args.join("\n"));
    let made = fs::read_to_string(&stamp).unwrap_or_default();
    if made != wanted {
        // cmake keeps its first generator and compilers; everything else it can change.
        if build.exists() && made.lines().next() != Some(&toolchain) {
            fs::remove_dir_all(&build)
                .with_context(|| format!("cannot remove {}", build.display()))?;
        }
        // A configure step that is killed must not leave a stamp that fits.
        if stamp.exists() {
            fs::remove_file(&stamp)
                .with_context(|| format!("cannot remove {}", stamp.display()))?;
        }
        let mut cmd = command(tree, "cmake");
        cmd.arg("-S").arg(tree.src()).arg("-B").arg(&build);
        if on_path("ninja") {
            cmd.args(["-G", "Ninja"]);
        }
        cmd.args(&args);
        run(cmd, &tree.log(), "cmake could not configure llama.cpp")?;
        fs::write(&stamp, &wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    let mut cmd = command(tree, "cmake");
    cmd.arg("--build").arg(&build).args([
        "--config",
        "Release",
        "--parallel",
        &jobs.max(1).to_string(),
    ]);
    cmd.arg("--target").args(targets);
    run(cmd, &tree.log(), "llama.cpp does not compile")
}

/// What a build folder cannot change after its first configure step.
fn toolchain() -> String {
    let var = |name: &str| env::var(name).unwrap_or_default();
    format!(
        "ninja {} CC={} CXX={}",
        on_path("ninja"),
        var("CC"),
        var("CXX")
    )
}

/// Arguments of the configure step.
fn arguments(tree: &Tree, options: &Options, pin: Option<&Pin>) -> Vec<String> {
    let (number, commit) = pin.map_or((0, "unknown"), |pin| {
        (pin.upstream.build_number, pin.upstream.commit.as_str())
    });
    let mut args: Vec<String> = Vec::new();
    let mut define = |name: &str, value: &str| args.push(format!("-D{name}={value}"));
    let flag = |on: bool| if on { "ON" } else { "OFF" };
    define("CMAKE_BUILD_TYPE", "Release");
    define("CMAKE_POSITION_INDEPENDENT_CODE", "ON");
    define("CMAKE_C_FLAGS", &compiler_flags(tree, "CFLAGS"));
    define("CMAKE_CXX_FLAGS", &compiler_flags(tree, "CXXFLAGS"));
    define("BUILD_SHARED_LIBS", "OFF");
    define("LLAMA_BUILD_TESTS", "OFF");
    // Targets for `cargo xtask test`; nothing is built that is not asked for.
    define("LLAMA_BUILD_EXAMPLES", "ON");
    define("LLAMA_BUILD_APP", "OFF");
    define("LLAMA_BUILD_TOOLS", "ON");
    define("LLAMA_BUILD_SERVER", "ON");
    // Either would download the web UI or its parts.
    define("LLAMA_BUILD_UI", "OFF");
    define("LLAMA_USE_PREBUILT_UI", "OFF");
    define("LLAMA_BUILD_NUMBER", &number.to_string());
    define("LLAMA_BUILD_COMMIT", commit);
    // ggml asks git for a commit otherwise, and an outer repository would answer.
    define("GIT_EXE", "OFF");
    define("GGML_OPENMP", flag(options.openmp));
    define("GGML_NATIVE", flag(options.native));
    define("GGML_CUDA", flag(options.cuda));
    define("GGML_VULKAN", flag(options.vulkan));
    define("GGML_METAL", flag(options.metal));
    define("GGML_METAL_EMBED_LIBRARY", flag(options.metal));
    define("GGML_RPC", flag(options.rpc));
    define("GGML_CCACHE", "OFF");
    if on_path("ccache") {
        define("CMAKE_C_COMPILER_LAUNCHER", "ccache");
        define("CMAKE_CXX_COMPILER_LAUNCHER", "ccache");
    }
    args
}

/// The user's flags, and paths relative to the source in `__FILE__`: the same objects in every
/// folder, so that the compiler cache serves them all.
fn compiler_flags(tree: &Tree, user: &str) -> String {
    let map = format!("-ffile-prefix-map={}=llama.cpp", tree.src().display());
    env::var(user)
        .into_iter()
        .chain([map])
        .collect::<Vec<_>>()
        .join(" ")
}

/// A command of the build: no outer git repository, cached objects that fit any folder.
pub fn command(tree: &Tree, program: &str) -> Command {
    let mut cmd = Command::new(program);
    cmd.current_dir(&tree.root)
        .env("GIT_CEILING_DIRECTORIES", &tree.root)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .env("CCACHE_BASEDIR", &tree.root)
        .env("CCACHE_NOHASHDIR", "1")
        .env_remove("DESTDIR")
        .env_remove("HF_UI_VERSION")
        .env_remove("HF_WEBUI_VERSION");
    cmd
}

/// Runs a command with its output in `log`; a failure shows the last lines of it.
pub fn run(mut cmd: Command, log: &Path, failure: &str) -> Result<()> {
    let program = cmd.get_program().to_string_lossy().into_owned();
    let open = || -> std::io::Result<(fs::File, fs::File)> {
        let out = fs::OpenOptions::new().create(true).append(true).open(log)?;
        Ok((out.try_clone()?, out))
    };
    let (out, err) = open().with_context(|| format!("cannot write {}", log.display()))?;
    let status = match cmd.stdin(Stdio::null()).stdout(out).stderr(err).status() {
        Ok(status) => status,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            bail!("{program} is not installed; `cargo xtask setup` installs what the build needs")
        }
        Err(e) => return Err(e).with_context(|| format!("cannot start {program}")),
    };
    if status.success() {
        return Ok(());
    }
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    bail!(
        "{failure} ({status}); the log is {}, its end:\n{}",
        log.display(),
        tail(&text)
    )
}

/// The last lines of a log, and before them the compiler's first error if it is not there.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let cut = lines.len().saturating_sub(LOG_TAIL);
    let first = lines[..cut]
        .iter()
        .find(|l| l.contains("error:") || l.contains("CMake Error"));
    first
        .into_iter()
        .chain(&lines[cut..])
        .map(|l| format!("    {l}\n"))
        .collect()
}

/// A value of the configured build, for example `OPENSSL_SSL_LIBRARY`.
pub fn cache_value(tree: &Tree, name: &str) -> Result<Option<String>> {
    let path = tree.build().join("CMakeCache.txt");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text
        .lines()
        .filter_map(|l| l.split_once('='))
        .find(|(key, _)| key.split(':').next() == Some(name))
        .map(|(_, value)| value.to_owned())
        .filter(|v| !v.is_empty() && !v.ends_with("-NOTFOUND")))
}

/// Whether a program is on the search path.
pub fn on_path(program: &str) -> bool {
    let name = format!("{program}{}", env::consts::EXE_SUFFIX);
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|dir: PathBuf| dir.join(&name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn tree(target: &Path) -> (Tree, Options) {
        let source = Source {
            root: target.to_owned(),
            files: Vec::new(),
            pinned: false,
            id: "test".into(),
        };
        let options = Options::cpu("test");
        let tree = Tree::lock(target, "", &source, &options).unwrap();
        fs::create_dir_all(tree.build()).unwrap();
        (tree, options)
    }

    #[test]
    fn only_the_pinned_source_has_the_commit_of_the_pin() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, options) = tree(dir.path());
        let vendor = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vendor");
        let pin = Pin::read(&vendor).unwrap();
        let check = |pin, number: &str, commit: &str| {
            let args = arguments(&tree, &options, pin);
            assert!(args.contains(&format!("-DLLAMA_BUILD_NUMBER={number}")));
            assert!(args.contains(&format!("-DLLAMA_BUILD_COMMIT={commit}")));
        };
        let number = pin.upstream.build_number.to_string();
        check(Some(&pin), &number, &pin.upstream.commit);
        check(None, "0", "unknown");
    }

    #[test]
    fn a_configure_step_that_fails_leaves_no_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, options) = tree(dir.path());
        let stamp = tree.build().join(STAMP);
        fs::write(&stamp, format!("{}\n-DOLD=1", toolchain())).unwrap();
        let error = build(&tree, &options, None, LIBRARY, 1).unwrap_err();
        assert!(error.to_string().contains("could not configure"), "{error}");
        assert!(tree.build().exists() && !stamp.exists());
    }
}
