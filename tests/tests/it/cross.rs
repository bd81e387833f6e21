//! Every combination of the parameters of the KV cache, with four sequences.

use rys::{CacheType, Spec};
use rys_tests::job::Params;
use rys_tests::synth::Synth;

use crate::pair::{Cell, Pair, refused, short_steps, spec};

const TYPES: [CacheType; 9] = [
    CacheType::F32,
    CacheType::F16,
    CacheType::Bf16,
    CacheType::Q8_0,
    CacheType::Q5_0,
    CacheType::Q5_1,
    CacheType::Q4_0,
    CacheType::Q4_1,
    CacheType::Iq4Nl,
];

fn is_quantized(t: CacheType) -> bool {
    !matches!(t, CacheType::F32 | CacheType::F16 | CacheType::Bf16)
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for type_k in TYPES {
        for type_v in TYPES {
            for kv_unified in [false, true] {
                for offload_kqv in [true, false] {
                    for (flash_attn, flash_auto) in [(true, false), (false, false), (true, true)] {
                        cells.push(Cell {
                            params: Params {
                                n_seq_max: 4,
                                kv_unified,
                                flash_attn,
                                flash_auto,
                                offload_kqv,
                                type_k,
                                type_v,
                                swa_full: false,
                                ..Params::default()
                            },
                            steps: short_steps(4),
                        });
                    }
                }
            }
        }
    }
    cells
}

fn check(synth: &Synth, text: &str) {
    let mut pair = Pair::new(synth);
    let spec: Spec = spec(text);
    let twin = pair.twin(&spec);
    let all = cells();
    assert_eq!(all.len(), 9 * 9 * 2 * 2 * 3);
    let (mut n_valid, mut n_invalid) = (0, 0);
    for cell in &all {
        let (ours, theirs) = pair.run(Some(&spec), &twin, cell);
        let p = &cell.params;
        if is_quantized(p.type_v) && !p.flash_attn {
            let reason = "quantized V cache requires flash_attn to be enabled";
            refused(&ours, &theirs, reason);
            n_invalid += 1;
            continue;
        }
        assert_eq!((&ours.error, &theirs.error), (&None, &None), "{p:?}");
        assert!(ours.ok() == theirs.ok(), "{p:?}");
        assert!(ours.logits().iter().all(|l| l.is_finite()), "{p:?}");
        n_valid += 1;
    }
    // without flash attention, with one of six quantized types of V
    assert_eq!((n_valid, n_invalid), (972 - 216, 9 * 6 * 2 * 2));
}

#[test]
fn qwen35() {
    check(&Synth::new("qwen35"), "2-7");
}

#[test]
fn gemma4() {
    check(&Synth::new("gemma4"), "1-5");
}
