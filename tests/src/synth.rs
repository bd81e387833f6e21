//! Small models of random weights, one for each architecture.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use llama_sys as sys;

use crate::gguf::Writer;
use crate::log;

/// A model: its architecture, its sizes, and what else its metadata have.
#[derive(Debug, Clone)]
pub struct Synth {
    pub arch: &'static str,
    /// Without NextN blocks.
    pub n_layer: u32,
    pub n_embd: u32,
    pub n_head: u32,
    pub n_head_kv: u32,
    /// Head size, of K and of V.
    pub head: u32,
    pub n_ff: u32,
    /// Keys below the architecture's name, and their values.
    pub keys: Vec<(&'static str, Value)>,
    /// Changes all weights.
    pub seed: u64,
    /// Scale of what each layer adds to its input. Small, the next token depends on the last one
    /// above all, and an MTP block, which then passes on its token, foresees it.
    pub residual: f32,
    /// Parts of the names of optional tensors that the model lacks.
    pub without: Vec<&'static str>,
    /// Parts of the names of tensors that are zero.
    pub zero: Vec<&'static str>,
}

/// A metadata value.
#[derive(Debug, Clone)]
pub enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Bools(Vec<bool>),
    U32s(Vec<u32>),
    F32s(Vec<f32>),
}

pub const N_VOCAB: u32 = 128;

/// Window of the layers with sliding-window attention, in tokens.
pub const N_SWA: u32 = 16;

impl Synth {
    /// Every architecture that these tests know. Head sizes differ: 32 is the smallest that a
    /// quantized cache takes, and 64 the smallest whose quantized K is rotated.
    pub fn new(arch: &'static str) -> Self {
        let base = Self {
            arch,
            n_layer: 6,
            n_embd: 64,
            n_head: 4,
            n_head_kv: 2,
            head: 32,
            n_ff: 96,
            keys: Vec::new(),
            seed: 0,
            residual: 1.0,
            without: Vec::new(),
            zero: Vec::new(),
        };
        match arch {
            "llama" => base,
            // their heads must make up the embedding
            "qwen2" | "internlm2" => Self {
                n_embd: 128,
                ..base
            },
            "qwen3" => Self {
                n_head: 2,
                n_head_kv: 1,
                head: 64,
                ..base
            },
            "qwen3moe" => Self {
                keys: vec![
                    ("expert_count", Value::U32(4)),
                    ("expert_used_count", Value::U32(2)),
                    ("expert_feed_forward_length", Value::U32(32)),
                ],
                ..base
            },
            "gemma3" => Self {
                n_layer: 7,
                keys: vec![
                    ("attention.sliding_window", Value::U32(N_SWA)),
                    (
                        "attention.sliding_window_pattern",
                        Value::Bools(vec![true, true, false, true, true, false, true]),
                    ),
                    ("rope.freq_base_swa", Value::F32(1e4)),
                ],
                ..base
            },
            other => crate::archs::find(other, base)
                .unwrap_or_else(|| panic!("no metadata for the architecture {other}")),
        }
    }

    /// Leaves out optional tensors whose names contain one of these.
    pub fn without(mut self, parts: &[&'static str]) -> Self {
        self.without.extend(parts);
        self
    }

    /// Sets a key below the architecture's name.
    pub fn with(mut self, key: &'static str, value: Value) -> Self {
        self.keys.retain(|(k, _)| *k != key);
        self.keys.push((key, value));
        self
    }

    fn n_nextn(&self) -> u32 {
        let is_nextn = |(key, _): &&(_, Value)| *key == "nextn_predict_layers";
        match self.keys.iter().find(is_nextn) {
            Some((_, Value::U32(n))) => *n,
            _ => 0,
        }
    }

    fn metadata(&self) -> Writer<'static> {
        let key = |name: &str| format!("{}.{name}", self.arch);
        let mut out = Writer::new();
        out.set_str("general.architecture", self.arch);
        for (name, value) in [
            ("vocab_size", N_VOCAB),
            ("context_length", 1024),
            ("embedding_length", self.n_embd),
            ("block_count", self.n_layer + self.n_nextn()),
            ("feed_forward_length", self.n_ff),
            ("attention.head_count", self.n_head),
            ("attention.head_count_kv", self.n_head_kv),
            ("attention.key_length", self.head),
            ("attention.value_length", self.head),
            ("rope.dimension_count", self.head),
        ] {
            out.set_u32(&key(name), value);
        }
        out.set_f32(&key("attention.layer_norm_rms_epsilon"), 1e-5);
        out.set_f32(&key("rope.freq_base"), 1e5);
        for (name, value) in &self.keys {
            let name = key(name);
            match value {
                Value::U32(v) => out.set_u32(&name, *v),
                Value::F32(v) => out.set_f32(&name, *v),
                Value::Bool(v) => out.set_bool(&name, *v),
                Value::Bools(v) => out.set_bools(&name, v),
                Value::U32s(v) => out.set_u32s(&name, v),
                Value::F32s(v) => out.set_f32s(&name, v),
            }
        }

        // llama.cpp's tokenizer for tests
        out.set_str("tokenizer.ggml.model", "test");
        let tokens: Vec<String> = (0..N_VOCAB).map(|i| format!("tok_{i}")).collect();
        out.set_strs("tokenizer.ggml.tokens", &tokens);
        out.set_f32s("tokenizer.ggml.scores", &vec![0.0; tokens.len()]);
        out
    }

    /// Writes the model to `dir` and returns its path.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let tensors: Vec<_> = self
            .shapes()
            .into_iter()
            .map(|(name, ne)| {
                let data = self.tensor(&name, ne);
                (name, ne, data)
            })
            .collect();
        let path = dir.join(format!("{}-{}.gguf", self.arch, self.seed));
        let mut out = self.metadata();
        let mut write = || {
            for (name, ne, data) in &tensors {
                out.add(name, sys::GGML_TYPE_F32, *ne, data);
            }
            out.write(&path);
        };
        write();
        path
    }

    /// Names and shapes of the model's tensors: llama.cpp asks for them when it makes a model from
    /// metadata alone.
    fn shapes(&self) -> BTreeMap<String, [i64; 4]> {
        if self.arch == "gemma4-assistant" {
            return self.assistant_shapes();
        }
        let mut shapes = BTreeMap::new();
        let mut metadata = self.metadata();
        let mut model = ptr::null_mut();
        let mut err = sys::rys_error { text: [0; 1024] };
        // SAFETY: the callback gets `shapes`, which outlives the call.
        let (status, log) = log::capture(|| unsafe {
            let params = sys::llama_model_params {
                load_mtp: true,
                ..sys::llama_model_default_params()
            };
            sys::rys_model_init_from_user(
                metadata.as_ptr(),
                Some(record),
                (&raw mut shapes).cast(),
                params,
                &mut model,
                &mut err,
            )
        });
        assert!(
            status == 0 && !model.is_null(),
            "{}: {:#?}",
            self.arch,
            log::lines(&log)
        );
        // SAFETY: the model is this function's.
        unsafe { sys::llama_model_free(model) };
        // scales of a weight type that these models do not use; gemma4's experts have some of their own
        shapes.retain(|name: &String, _| {
            !(name.ends_with(".scale") || name.ends_with("_scale"))
                || self.arch == "gemma4"
                    && (name.contains("ffn_gate_inp") || name.contains("ffn_down_exps"))
        });
        shapes.retain(|name, _| !self.without.iter().any(|part| name.contains(part)));
        shapes
    }
}

impl Synth {
    /// Bytes of a tensor.
    fn tensor(&self, name: &str, ne: [i64; 4]) -> Vec<u8> {
        let mut data = weights(name, ne, self.seed);
        if self.zero.iter().any(|part| name.contains(part)) {
            data.fill(0.0);
        }
        // the last things that a layer does to what it adds
        let ends = if self.arch.starts_with("gemma") {
            ["post_attention_norm", "post_ffw_norm", "post_norm"]
        } else {
            ["attn_output", "ssm_out", "ffn_down"]
        };
        if self.residual != 1.0 {
            if ends.iter().any(|end| name.contains(end)) {
                data.iter_mut().for_each(|x| *x *= self.residual);
            }
            self.predict(name, ne, &mut data);
        }
        data.iter().flat_map(|x| x.to_le_bytes()).collect()
    }
}

unsafe extern "C" fn record(tensor: *mut sys::ggml_tensor, shapes: *mut c_void) {
    // SAFETY: llama.cpp passes a complete tensor and the pointer of the call above.
    let (tensor, shapes) = unsafe { (&*tensor, &mut *shapes.cast::<BTreeMap<String, [i64; 4]>>()) };
    // SAFETY: NUL-terminated.
    let name = unsafe { CStr::from_ptr(tensor.name.as_ptr()) };
    shapes.insert(name.to_string_lossy().into_owned(), tensor.ne);
}

/// Random weights; the seed is the tensor's name.
pub(crate) fn weights(name: &str, ne: [i64; 4], seed: u64) -> Vec<f32> {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64 ^ seed, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    let mut rng = fastrand::Rng::with_seed(hash);
    let n = ne.iter().product::<i64>() as usize;
    let mut data = Vec::with_capacity(n);
    for _ in 0..n {
        let x = rng.f32() * 2.0 - 1.0;
        let value = if name.contains("norm") && name.ends_with("weight")
            || name.starts_with("rope_")
            || name.contains("scale")
        {
            1.0 + 0.3 * x
        } else if name.ends_with("ssm_a") {
            -x.abs()
        } else if name.ends_with("bias") {
            0.2 * x
        } else {
            // keeps the variance of a product of rows
            x * (3.0 / ne[0] as f32).sqrt()
        };
        data.push(value);
    }
    data
}
