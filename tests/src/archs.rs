//! Metadata of the hybrid Qwen and the Gemma families.

use crate::synth::{N_SWA, Synth, Value};

const EXPERTS: [(&str, Value); 3] = [
    ("expert_count", Value::U32(4)),
    ("expert_used_count", Value::U32(2)),
    ("expert_feed_forward_length", Value::U32(32)),
];

/// The entry of an architecture in the table of [`Synth::new`].
pub fn find(arch: &'static str, base: Synth) -> Option<Synth> {
    let synth = match arch {
        "qwen35" => delta_net(base),
        "qwen35moe" | "qwen3next" => delta_net(base)
            .keys(EXPERTS)
            .with("expert_shared_feed_forward_length", Value::U32(48))
            .without(&["ssm_in."]),
        // pairs of kinds, ending with a global layer
        "gemma2" => Synth {
            n_layer: 6,
            ..windows(base, &[true, false, true, true, false, false])
        },
        // below ten layers all are sparse, below twenty none shares its KV
        "gemma3n" => Synth {
            n_layer: 5,
            n_head: 2,
            n_head_kv: 1,
            ..windows(base, &[true, true, false, true, false])
        }
        .with("rope.freq_base_swa", Value::F32(1e4)),
        // layers of both kinds, sizes and rope differ between the kinds
        "gemma4" => gemma4(base, &[true, true, false, true, true, true, false]),
        // reads the cells of the last two layers of the gemma4 above
        "gemma4-assistant" => gemma4(Synth { n_embd: 96, ..base }, &[true, false])
            .keys([
                ("nextn_predict_layers", Value::U32(2)),
                ("embedding_length_out", Value::U32(64)),
            ])
            .all_nextn(),
        // drafts for models of the usual embedding
        "eagle3" => Synth {
            n_layer: 1,
            n_head: 2,
            ..base
        }
        .with("norm_before_residual", Value::Bool(true))
        .with("target_hidden_size", Value::U32(64))
        .with("target_layers", Value::U32s(vec![1, 3, 4])),
        _ => return None,
    };
    Some(Synth { arch, ..synth })
}

/// Three gated delta nets, then full attention, twice.
fn delta_net(base: Synth) -> Synth {
    Synth { n_layer: 8, ..base }.keys([
        ("ssm.conv_kernel", Value::U32(4)),
        ("ssm.inner_size", Value::U32(128)),
        ("ssm.state_size", Value::U32(32)),
        ("ssm.time_step_rank", Value::U32(4)),
        ("ssm.group_count", Value::U32(2)),
        ("full_attention_interval", Value::U32(4)),
        ("rope.dimension_sections", Value::U32s(vec![6, 6, 4, 0])),
    ])
}

fn windows(base: Synth, pattern: &[bool]) -> Synth {
    base.keys([
        ("attention.sliding_window", Value::U32(N_SWA)),
        (
            "attention.sliding_window_pattern",
            Value::Bools(pattern.into()),
        ),
    ])
}

fn gemma4(base: Synth, pattern: &[bool]) -> Synth {
    let n_head_kv = pattern.iter().map(|&swa| if swa { 4 } else { 1 }).collect();
    let base = Synth {
        n_layer: pattern.len() as u32,
        head: 64,
        ..base
    };
    windows(base, pattern).keys([
        ("attention.head_count_kv", Value::U32s(n_head_kv)),
        ("attention.key_length_swa", Value::U32(32)),
        ("attention.value_length_swa", Value::U32(32)),
        ("rope.dimension_count_swa", Value::U32(32)),
        ("rope.freq_base_swa", Value::F32(1e4)),
        ("embedding_length_per_layer_input", Value::U32(0)),
        ("attention.shared_kv_layers", Value::U32(0)),
        ("final_logit_softcapping", Value::F32(30.0)),
    ])
}

impl Synth {
    /// `gemma4` with a mixture of experts beside each feed-forward network, as 26B-A4B.
    pub fn gemma4_moe() -> Self {
        Self::new("gemma4").keys(EXPERTS)
    }

    /// `gemma4` whose global layers use K as V, as 31B.
    pub fn gemma4_k_is_v() -> Self {
        Self::new("gemma4").without(&["blk.2.attn_v.", "blk.6.attn_v."])
    }

    /// `gemma4` with an embedding for each layer, and `n_shared` last layers that read the KV cells
    /// of earlier ones, as E2B and E4B.
    ///
    /// The last layers with cells of their own are one with a window and a global one.
    pub fn gemma4_e2b(n_shared: u32) -> Self {
        let pattern = [true, true, false, true, false, true, true, false];
        Self {
            n_layer: pattern.len() as u32,
            ..Self::new("gemma4")
        }
        .keys([
            (
                "attention.sliding_window_pattern",
                Value::Bools(pattern.into()),
            ),
            ("attention.head_count_kv", Value::U32s(vec![1; 8])),
            ("embedding_length_per_layer_input", Value::U32(16)),
            ("attention.shared_kv_layers", Value::U32(n_shared)),
        ])
    }

    /// `gemma3n` with `n_layer` layers, those from 20 on reading the KV cells of earlier ones.
    pub fn gemma3n_shared(n_layer: u32) -> Self {
        let pattern = (0..n_layer).map(|il| il % 5 != 4).collect();
        Self {
            n_layer,
            ..Self::new("gemma3n")
        }
        .with("attention.sliding_window_pattern", Value::Bools(pattern))
    }

    /// Adds a NextN block, which drafts the token after the next. Embeddings and head are the model's.
    pub fn mtp(self) -> Self {
        self.with("nextn_predict_layers", Value::U32(1))
            .without(&["nextn.embed_tokens", "nextn.shared_head"])
    }

    fn all_nextn(self) -> Self {
        Self { n_layer: 0, ..self }
    }

    fn keys(self, keys: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        keys.into_iter().fold(self, |s, (k, v)| s.with(k, v))
    }
}
