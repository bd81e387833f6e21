//! Models that draft for others, and weights by which drafts are often right.

use std::collections::BTreeMap;

use crate::synth::{N_VOCAB, Synth, weights};

impl Synth {
    /// llama.cpp makes no such model from metadata alone.
    pub(crate) fn assistant_shapes(&self) -> BTreeMap<String, [i64; 4]> {
        let [n_embd, n_ff, n_vocab] = [self.n_embd, self.n_ff, N_VOCAB].map(i64::from);
        let n_target = 64;
        let mut shapes: BTreeMap<_, _> = [
            ("token_embd", [n_embd, n_vocab]),
            ("output_norm", [n_embd, 1]),
            ("rope_freqs", [32, 1]),
            ("nextn.pre_projection", [2 * n_target, n_embd]),
            ("nextn.post_projection", [n_embd, n_target]),
        ]
        .map(|(name, [n, m])| (format!("{name}.weight"), [n, m, 1, 1]))
        .into();
        for (il, head) in [(0, 32), (1, 64)] {
            let n_q = i64::from(self.n_head) * head;
            shapes.extend(
                [
                    ("attn_norm", [n_embd, 1]),
                    ("attn_q", [n_embd, n_q]),
                    ("attn_q_norm", [head, 1]),
                    ("attn_output", [n_q, n_embd]),
                    ("post_attention_norm", [n_embd, 1]),
                    ("layer_output_scale", [1, 1]),
                    ("ffn_norm", [n_embd, 1]),
                    ("ffn_gate", [n_embd, n_ff]),
                    ("ffn_up", [n_embd, n_ff]),
                    ("ffn_down", [n_ff, n_embd]),
                    ("post_ffw_norm", [n_embd, 1]),
                ]
                .map(|(name, [n, m])| (format!("blk.{il}.{name}.weight"), [n, m, 1, 1])),
            );
        }
        shapes
    }

    /// Makes each token's successor another one, both for the model and for what drafts for it.
    pub(crate) fn predict(&self, name: &str, ne: [i64; 4], data: &mut [f32]) {
        let n = ne[0] as usize;
        let is_assistant = self.arch == "gemma4-assistant";
        // an assistant has the head of its target, and room beside it
        let successors = |data: &mut [f32], n_embd: usize| {
            let embd = weights("token_embd.weight", [n_embd as i64, ne[1], 1, 1], self.seed);
            data.fill(0.0);
            for (i, row) in embd.chunks(n_embd).enumerate() {
                let next = (5 * i + 17) % N_VOCAB as usize;
                data[next * n..][..n_embd].copy_from_slice(row);
            }
        };
        match name {
            _ if self.arch == "eagle3" && drafts(name, n, data) => {}
            "output.weight" => successors(data, n),
            "token_embd.weight" if is_assistant => successors(data, 64),
            _ if name.ends_with("nextn.enorm.weight") => data.fill(1.0),
            _ if name.ends_with("nextn.eh_proj.weight")
                || name.ends_with("pre_projection.weight") =>
            {
                // rows of a token's embedding and a hidden state
                for (i, row) in data.chunks_mut(n).enumerate() {
                    for (j, x) in row.iter_mut().enumerate() {
                        *x = if j < n / 2 {
                            f32::from(i == j)
                        } else {
                            *x * self.residual
                        };
                    }
                }
            }
            _ => {}
        }
    }
}

/// Weights of a draft model whose attention passes on its token and little else. Its residual stream is
/// made of the inputs of its target's layers.
fn drafts(name: &str, n: usize, data: &mut [f32]) -> bool {
    let scale = match name {
        // a token attends to itself
        "blk.0.attn_q.weight" | "blk.0.attn_k.weight" => 2.5,
        "blk.0.attn_v.weight" => 1.0,
        "blk.0.attn_output.weight" => 4.0,
        "blk.0.attn_norm.weight" => {
            data.fill(1.0);
            return true;
        }
        _ => return false,
    };
    for (i, row) in data.chunks_mut(n).enumerate() {
        row.fill(0.0);
        row[i] = scale;
    }
    true
}
