//! Hands the target triple to the program: the reference build must match the patched one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=XTASK_TARGET={target}");
}
