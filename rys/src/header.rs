use std::collections::HashSet;
use std::ffi::CStr;
use std::path::Path;

use llama_sys as sys;
use rys_plan::{LLAMA_MAX_LAYERS, Plan, Spec};

use crate::gguf::Gguf;
use crate::{Error, Result};

/// llama.cpp's `LLAMA_MAX_EXPERTS`.
const MAX_EXPERTS: u32 = 1024;

/// Keys that the loader or the graph of these architectures divides by; of all without a list.
const DIVISORS: [(&str, &[&str]); 6] = [
    ("full_attention_interval", &[]),
    ("wkv.head_size", &[]),
    ("experts_per_group", &[]),
    ("attention.head_count", &["gemma2", "gemma3"]),
    ("ssm.group_count", WITH_GROUPS),
    ("ssm.time_step_rank", WITH_GROUPS),
];
const WITH_GROUPS: &[&str] = &[
    "falcon-h1",
    "granitehybrid",
    "mamba2",
    "nemotron_h",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
];

/// What a GGUF file says about its layers. Reading it loads no weights and never aborts, whatever
/// the file contains.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// `general.architecture`, such as `llama`.
    pub arch: String,
    /// `general.name`, if the file has one.
    pub name: Option<String>,
    /// `<arch>.block_count`: all layers, 1 to 512.
    pub block_count: u32,
    /// `<arch>.nextn_predict_layers`: MTP layers at the end of these, at most `block_count`.
    pub nextn_predict_layers: u32,
}

impl Header {
    /// Reads and checks the header of a GGUF file. For a split model that is its first file.
    ///
    /// Refuses what llama.cpp's loader is known to end the process for: a layer or expert count outside
    /// its range, a zero that it divides by, an unknown RoPE scaling, a vocabulary with a token twice.
    /// Other assertions of the loader that fail are errors of [`Model::load`](crate::Model::load).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be read; [`Error::Header`] for a directory, an empty,
    /// truncated or non-GGUF file, and for a key that is missing, of the wrong type or out of range.
    #[doc(alias = "gguf_init_from_file")]
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let gguf = Gguf::open(path.as_ref())?;
        let header = Self::parse(&gguf)?;
        header.check_experts(&gguf)?;
        header.check_divisors(&gguf)?;
        header.check_rope(&gguf)?;
        check_tokens(&gguf)?;
        Ok(header)
    }

    /// Source layers, without the MTP layers: what a spec may repeat.
    pub fn n_layer(&self) -> u32 {
        self.block_count - self.nextn_predict_layers
    }

    /// Expands a spec for this file's model, before any weight is loaded.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedArch`], or [`Error::Plan`] when the spec does not fit the layers.
    pub fn plan(&self, spec: &Spec) -> Result<Plan> {
        plan(&self.arch, self.n_layer(), self.nextn_predict_layers, spec)
    }

    fn parse(gguf: &Gguf) -> Result<Self> {
        let arch = gguf
            .string("general.architecture")?
            .filter(|arch| !arch.is_empty())
            .ok_or_else(|| gguf.refuse("key general.architecture is missing"))?;
        if arch == "clip" {
            return Err(gguf.refuse("it is a vision or audio projector; give the language model"));
        }
        let key = format!("{arch}.block_count");
        let block_count = gguf
            .u32(&key)?
            .ok_or_else(|| gguf.refuse(format!("key {key} is missing")))?;
        if !(1..=LLAMA_MAX_LAYERS).contains(&block_count) {
            return Err(gguf.refuse(format!(
                "key {key} is {block_count}; llama.cpp allows 1 to {LLAMA_MAX_LAYERS}"
            )));
        }
        let key = format!("{arch}.nextn_predict_layers");
        let nextn_predict_layers = gguf.u32(&key)?.unwrap_or(0);
        if nextn_predict_layers > block_count {
            return Err(gguf.refuse(format!(
                "key {key} is {nextn_predict_layers}, more than the {block_count} layers there are"
            )));
        }
        let name = gguf.string("general.name")?;
        Ok(Self {
            arch,
            name,
            block_count,
            nextn_predict_layers,
        })
    }

    fn check_experts(&self, gguf: &Gguf) -> Result<()> {
        let arch = &self.arch;
        let count =
            |key: &str| -> Result<u32> { Ok(gguf.u32(&format!("{arch}.{key}"))?.unwrap_or(0)) };
        let mut experts = count("expert_count")?;
        let mut used = gguf
            .largest(&format!("{arch}.expert_used_count"))?
            .unwrap_or(0);
        let groups = count("expert_group_count")?;
        let group_used = count("expert_group_used_count")?;
        if matches!(arch.as_str(), "hunyuan_vl" | "hunyuan-dense") && experts <= 1 {
            (experts, used) = (0, 0);
        }
        let fine = if experts == 0 {
            used == 0 && groups == 0
        } else {
            experts <= MAX_EXPERTS
                && (1..=experts).contains(&used)
                && groups < experts
                && (groups <= 1
                    || (experts.is_multiple_of(groups) && (1..groups).contains(&group_used)))
        };
        if fine {
            return Ok(());
        }
        Err(gguf.refuse(format!(
            "the expert counts do not fit together: {arch}.expert_count {experts}, \
             expert_used_count {used}, expert_group_count {groups}, \
             expert_group_used_count {group_used}"
        )))
    }

    fn check_divisors(&self, gguf: &Gguf) -> Result<()> {
        let arch = &self.arch;
        let keys = DIVISORS
            .into_iter()
            .filter(|(_, archs)| archs.is_empty() || archs.contains(&&**arch));
        for (name, _) in keys {
            let key = format!("{arch}.{name}");
            if gguf.largest(&key)? == Some(0) {
                return Err(gguf.refuse(format!("key {key} is 0; llama.cpp divides by it")));
            }
        }
        Ok(())
    }

    fn check_rope(&self, gguf: &Gguf) -> Result<()> {
        let key = format!("{}.rope.scaling.type", self.arch);
        match gguf.string(&key)?.as_deref() {
            None | Some("none" | "linear" | "yarn" | "longrope") => Ok(()),
            Some(other) => Err(gguf.refuse(format!(
                "key {key} is `{}`; llama.cpp allows none, linear, yarn and longrope",
                other
            ))),
        }
    }
}

/// The loader asserts that no token is there twice, an empty one having a name of its own, and may
/// divide by their number.
pub(crate) fn check_tokens(gguf: &Gguf) -> Result<()> {
    let Some(tokens) = gguf.strings("tokenizer.ggml.tokens")? else {
        return Ok(());
    };
    let mut seen: HashSet<&CStr> = HashSet::new();
    let mut is_empty = true;
    for (i, token) in tokens.enumerate() {
        is_empty = false;
        if !token.is_empty() && !seen.insert(token) {
            return Err(gguf.refuse(format!(
                "token {i} of the vocabulary, `{}`, is there twice",
                token.to_string_lossy()
            )));
        }
    }
    let model = gguf.string("tokenizer.ggml.model")?;
    if is_empty && !matches!(model.as_deref(), Some("none" | "no_vocab")) {
        return Err(gguf.refuse("key tokenizer.ggml.tokens is empty"));
    }
    Ok(())
}

/// Architectures whose layers can be repeated, as the linked llama.cpp reports them.
#[doc(alias = "llama_layer_plan_archs")]
pub fn supported_archs() -> Vec<String> {
    // SAFETY: NUL-terminated, valid forever.
    let text = unsafe { CStr::from_ptr(sys::llama_layer_plan_archs()) };
    text.to_string_lossy()
        .split(',')
        .map(|arch| arch.trim().to_owned())
        .filter(|arch| !arch.is_empty())
        .collect()
}

pub(crate) fn plan(arch: &str, n_layer: u32, n_layer_nextn: u32, spec: &Spec) -> Result<Plan> {
    let supported = supported_archs();
    if !supported.iter().any(|s| s == arch) {
        let supported = supported.join(", ");
        return Err(Error::UnsupportedArch {
            arch: arch.to_owned(),
            supported,
        });
    }
    Ok(spec.plan(n_layer, n_layer_nextn)?)
}
