//! Every block of the hybrid Qwen and the Gemma families gives the logits of its expanded twin.

use rys::CacheType;
use rys_tests::job::Params;
use rys_tests::synth::{Synth, Value};

use crate::pair::{Cell, Pair, blocks, pairs, short_steps};

/// Ways to run a model that differ from each other in more than one parameter.
fn cells() -> Vec<Cell> {
    let base = Params::default();
    let four = Params {
        n_seq_max: 4,
        ..base.clone()
    };
    let all = [
        base.clone(),
        Params {
            flash_attn: false,
            n_ubatch: 8,
            ..base.clone()
        },
        Params {
            type_k: CacheType::Q8_0,
            type_v: CacheType::Q4_0,
            n_ubatch: 8,
            ..base
        },
        Params {
            n_ubatch: 8,
            flash_attn: false,
            ..four.clone()
        },
        Params {
            kv_unified: true,
            type_k: CacheType::Q4_0,
            ..four
        },
    ];
    all.into_iter()
        .map(|params| Cell {
            steps: short_steps(params.n_seq_max),
            params,
        })
        .collect()
}

/// Blocks in every cell, and pairs of blocks in the first.
pub fn check(synth: &Synth, wanted: impl Fn(&[(u32, u32)]) -> bool) {
    let mut pair = Pair::new(synth);
    let cells = cells();
    let base: Vec<_> = cells.iter().map(|cell| pair.base(cell)).collect();
    let n_layer = pair.n_layer();
    let bounds = |spec: &rys::Spec| -> Vec<(u32, u32)> {
        let blocks = spec.blocks().iter();
        blocks.map(|b| (b.start(), b.end())).collect()
    };
    for spec in blocks(n_layer).iter().filter(|s| wanted(&bounds(s))) {
        for (cell, base) in cells.iter().zip(&base) {
            pair.check(spec, cell, base);
        }
    }
    for spec in pairs(n_layer).iter().filter(|s| wanted(&bounds(s))) {
        pair.check(spec, &cells[0], &base[0]);
    }
}

#[test]
fn qwen35() {
    check(&Synth::new("qwen35"), |_| true);
}

/// Types in no period at all, as a file may name them.
#[test]
fn qwen35_irregular() {
    let types = [true, false, false, true, true, true, false, true];
    let synth = Synth::new("qwen35").with("attention.recurrent_layers", Value::Bools(types.into()));
    check(&synth, |blocks| blocks.len() == 1);
}

#[test]
fn qwen35moe() {
    check(&Synth::new("qwen35moe"), |_| true);
}

#[test]
fn qwen3next() {
    check(&Synth::new("qwen3next"), |_| true);
}

#[test]
fn gemma2() {
    check(&Synth::new("gemma2"), |_| true);
}

#[test]
fn gemma4() {
    check(&Synth::new("gemma4"), |_| true);
}

#[test]
fn gemma4_k_is_v() {
    check(&Synth::gemma4_k_is_v(), |_| true);
}

#[test]
fn gemma4_moe() {
    check(&Synth::gemma4_moe(), |_| true);
}

#[test]
fn gemma4_per_layer_embeddings() {
    check(&Synth::gemma4_e2b(0), |_| true);
}

#[test]
fn gemma3n() {
    check(&Synth::new("gemma3n"), |_| true);
}
