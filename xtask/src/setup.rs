//! `cargo xtask setup`: system packages, llama.cpp source, test models.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cmake::on_path;
use crate::progress::Step;
use crate::{models, paths, vendor};

/// Installs and fetches what is missing; quick when nothing is.
pub fn run() -> Result<()> {
    system()?;
    vendor::ensure()?;
    for id in models::ids() {
        models::ensure(id)?;
    }
    crates()
}

/// Every crate that the lock file names, so that builds work offline afterwards.
fn crates() -> Result<()> {
    let fetch = |more: &[&str]| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut cmd = Command::new(cargo);
        cmd.current_dir(paths::root())
            .args(["fetch", "--locked"])
            .args(more);
        cmd
    };
    if fetch(&["--offline"])
        .output()
        .is_ok_and(|out| out.status.success())
    {
        return Ok(());
    }
    let status = fetch(&[]).status().context("cannot start cargo")?;
    ensure!(status.success(), "`cargo fetch --locked` failed ({status})");
    Ok(())
}

/// A tool that a build needs, how to see that it is there, and the Debian packages with it.
struct Need {
    packages: &'static [&'static str],
    found: fn() -> bool,
}

const NEEDS: &[Need] = &[
    Need {
        packages: &["cmake"],
        found: || on_path("cmake"),
    },
    Need {
        packages: &["ninja-build"],
        found: || on_path("ninja"),
    },
    Need {
        packages: &["g++"],
        found: || compiles("#include <optional>\nint main() { return 0; }\n"),
    },
    Need {
        packages: &["libclang-dev"],
        found: has_libclang,
    },
    Need {
        packages: &["ccache"],
        found: || on_path("ccache"),
    },
    Need {
        packages: &["python3", "python3-pip"],
        found: || quiet("python3", &["-m", "pip", "--version"]),
    },
    Need {
        packages: &["libssl-dev"],
        found: || compiles("#include <openssl/ssl.h>\nint main() { return 0; }\n"),
    },
    Need {
        packages: &["pkg-config"],
        found: || on_path("pkg-config"),
    },
    Need {
        packages: &["git"],
        found: || on_path("git"),
    },
];

/// What `cargo xtask bench` needs besides.
const COUNTING: &[Need] = &[Need {
    packages: &["valgrind"],
    found: || on_path("valgrind"),
}];

/// Installs the system packages of the build.
pub fn system() -> Result<()> {
    install(NEEDS)
}

/// Installs the tool that counts instructions.
pub fn counting() -> Result<()> {
    install(COUNTING)
}

/// Installs missing system packages where that asks no question; otherwise stops with the
/// command, before anything is changed.
fn install(needs: &[Need]) -> Result<()> {
    let missing: Vec<&str> = needs
        .iter()
        .filter(|n| !(n.found)())
        .flat_map(|n| n.packages)
        .copied()
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let by_hand = format!("sudo apt-get update && sudo apt-get install --yes {list}");
    ensure!(
        on_path("apt-get"),
        "missing system packages: {list} (their Debian names); install them with your package manager"
    );
    let sudo: &[&str] = if quiet("sh", &["-c", "test \"$(id -u)\" = 0"]) {
        &[]
    } else if quiet("sudo", &["-n", "true"]) {
        &["sudo", "-n"]
    } else {
        bail!("missing system packages: {list}; install them with\n    {by_hand}");
    };
    let _step = Step::spinner(&format!("installing {list}"));
    // Without fresh lists an install can fail; a failing update alone is no reason to stop.
    let _ = apt(sudo, &["update"]);
    apt(
        sudo,
        &[
            &["install", "--yes", "--no-install-recommends"],
            missing.as_slice(),
        ]
        .concat(),
    )
    .with_context(|| format!("the install failed; by hand it is\n    {by_hand}"))?;
    let still: Vec<&str> = needs
        .iter()
        .filter(|n| !(n.found)())
        .flat_map(|n| n.packages)
        .copied()
        .collect();
    ensure!(
        still.is_empty(),
        "installed, but not usable: {}",
        still.join(" ")
    );
    Ok(())
}

fn apt(sudo: &[&str], args: &[&str]) -> Result<()> {
    let words: Vec<&str> = [
        sudo,
        &[
            "env",
            "DEBIAN_FRONTEND=noninteractive",
            "apt-get",
            "--quiet",
        ],
        args,
    ]
    .concat();
    let out = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", words[0]))?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr).trim()
    );
    Ok(())
}

fn quiet(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn compiles(text: &str) -> bool {
    let script = format!("printf '%s' '{text}' | c++ -std=c++17 -fsyntax-only -x c++ -");
    quiet("sh", &["-c", &script])
}

/// Where bindgen looks for libclang: `LIBCLANG_PATH`, llvm-config, the usual folders.
fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let named = |dir: &Path| {
        fs::read_dir(dir).is_ok_and(|items| {
            items.flatten().any(|i| {
                let name = i.file_name();
                let name = name.to_string_lossy();
                name.starts_with("libclang.so")
                    || name.starts_with("libclang-")
                        && name.contains(".so")
                        && !name.starts_with("libclang-cpp")
            })
        })
    };
    let mut dirs: Vec<std::path::PathBuf> = ["/usr/lib", "/usr/lib64", "/usr/local/lib"]
        .map(Into::into)
        .into();
    for parent in ["/usr/lib"] {
        for item in fs::read_dir(parent).into_iter().flatten().flatten() {
            dirs.push(item.path());
            dirs.push(item.path().join("lib"));
        }
    }
    dirs.iter().any(|d| named(d))
}
