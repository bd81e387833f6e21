//! A plan gives the logits of the physically expanded model on an unpatched llama.cpp, byte for byte.

mod real;
pub mod recycled;

use rys::CacheType;
use rys_tests::job::Params;
use rys_tests::synth::Synth;

use crate::pair::{Cell, Pair, check, refused, short_steps, spec};

#[test]
fn llama() {
    check(&Synth::new("llama"));
}

#[test]
fn qwen2() {
    check(&Synth::new("qwen2"));
}

#[test]
fn qwen3() {
    check(&Synth::new("qwen3"));
}

#[test]
fn qwen3moe() {
    check(&Synth::new("qwen3moe"));
}

#[test]
fn gemma3() {
    check(&Synth::new("gemma3"));
}

/// A head size that the blocks of a quantized cache do not divide is refused as it is upstream.
#[test]
fn cache_types_and_head_sizes() {
    for arch in ["llama", "gemma3"] {
        let mut pair = Pair::new(&Synth {
            head: 16,
            ..Synth::new(arch)
        });
        let twin = pair.twin(&spec("2,4"));
        for (type_k, type_v, reason) in [
            (
                CacheType::Q8_0,
                CacheType::F16,
                "K cache type q8_0 with block size 32 does not divide n_embd_head_k=16",
            ),
            (
                CacheType::F16,
                CacheType::Q4_0,
                "V cache type q4_0 with block size 32 does not divide n_embd_head_v=16",
            ),
        ] {
            let params = Params {
                type_k,
                type_v,
                ..Params::default()
            };
            let cell = Cell {
                params,
                steps: short_steps(1),
            };
            let (ours, theirs) = pair.run(Some(&spec("2,4")), &twin, &cell);
            refused(&ours, &theirs, reason);
        }
    }
}
