//! Sequences that are shifted, cut and copied: every pass follows, as the layers of the expanded
//! model do.

mod http;
mod shift;

use rys::{CacheType, Spec};
use rys_tests::job::{Outcome, Params, Step};
use rys_tests::state::payload;
use rys_tests::synth::Synth;

use crate::pair::{Cell, Pair, blocks, spec, tokens};

const TYPES: [CacheType; 3] = [CacheType::F16, CacheType::Q8_0, CacheType::Q4_0];

fn remove(seq: i32, p0: i32, p1: i32) -> Step {
    Step::SeqRm { seq, p0, p1 }
}

fn copy(seq: i32, dst: i32, p1: i32) -> Step {
    Step::SeqCp {
        seq,
        dst,
        p0: -1,
        p1,
    }
}

fn add(seq: i32, p0: i32, delta: i32) -> Step {
    Step::SeqAdd {
        seq,
        p0,
        p1: -1,
        delta,
    }
}

/// The same steps with a plan and on the twin: logits, return values, and the K and V rows of every
/// pass, wherever the steps ask for a state. Logits must not be those of `base`.
fn check(pair: &mut Pair, spec: &Spec, cell: &Cell, base: &Outcome) -> Outcome {
    let twin = pair.twin(spec);
    let (ours, theirs) = pair.run(Some(spec), &twin, cell);
    let shown = || format!("{} {spec} {:?}", pair.model.arch(), cell.params);
    assert_eq!(ours.error, None, "{}", shown());
    assert_eq!(theirs.error, None, "{}", shown());
    assert_eq!(ours.rets, theirs.rets, "{}", shown());
    for (i, step) in cell.steps.iter().enumerate() {
        let (a, b) = (&ours.outputs[i], &theirs.outputs[i]);
        match step {
            Step::State => {
                let (a, b) = (payload(a, true), payload(b, false));
                assert!(a == b && !a.is_empty(), "state {i}: {}", shown());
            }
            Step::Decode { .. } => {
                assert!(a == b, "logits {i}: {}", shown());
                assert!(*a != base.outputs[i], "as the base {i}: {}", shown());
            }
            _ => assert!(a.is_empty() && b.is_empty()),
        }
    }
    ours
}

/// A model whose quantized K is stored rotated: llama.cpp shifts no other.
fn head_64(arch: &'static str) -> Synth {
    let synth = Synth::new(arch);
    Synth {
        head: 64,
        n_embd: if arch == "qwen2" { 256 } else { synth.n_embd },
        ..synth
    }
}

/// Branches of a prompt in four sequences: copied, cut back, continued, all but one dropped, moved.
fn branches(kv_unified: bool) -> Vec<Step> {
    let t = tokens(80, 9);
    let mut steps = vec![Step::tokens(&t[..12], 0, 0), copy(0, 1, -1), copy(0, 3, -1)];
    // with a cache of its own for each sequence, only whole sequences are copied
    steps.push(copy(0, 2, if kv_unified { 7 } else { -1 }));
    let at2 = if kv_unified { 7 } else { 12 };
    steps.extend([
        Step::State,
        Step::tokens(&t[12..18], 12, 0),
        Step::tokens(&t[18..23], 12, 1),
        Step::tokens(&t[23..29], at2, 2),
        remove(1, 9, -1),
        Step::tokens(&t[33..38], 9, 1),
        remove(3, -1, -1),
        copy(1, 3, -1),
        Step::State,
        Step::tokens(&t[38..40], 14, 3),
    ]);
    if kv_unified {
        steps.push(Step::SeqKeep { seq: 3 });
    } else {
        steps.extend([0, 1, 2].map(|seq| remove(seq, -1, -1)));
    }
    steps.extend([
        remove(3, 2, 5),
        add(3, 5, -3),
        Step::tokens(&t[40..41], 13, 3),
        Step::State,
        // room for a new sequence, and back to an empty one
        Step::tokens(&t[41..50], 0, 0),
        remove(3, -1, -1),
        Step::tokens(&t[50..55], 9, 0),
        Step::State,
        Step::Clear,
        Step::tokens(&t[55..60], 0, 2),
        Step::State,
    ]);
    steps
}

fn check_branches(synth: &Synth) {
    let mut pair = Pair::new(synth);
    for kv_unified in [true, false] {
        for type_k in TYPES {
            let cell = Cell {
                params: Params {
                    n_seq_max: 4,
                    kv_unified,
                    type_k,
                    n_ubatch: 8,
                    ..Params::default()
                },
                steps: branches(kv_unified),
            };
            let path = pair.path.clone();
            let (base, theirs) = pair.run(None, &path, &cell);
            assert!(base.ok() == theirs.ok());
            let all = blocks(pair.n_layer());
            for spec in all.iter().chain(&[spec("1,2;3,5"), spec("0,3;3,6")]) {
                check(&mut pair, spec, &cell, &base);
            }
        }
    }
}

#[test]
fn branches_of_llama() {
    check_branches(&head_64("llama"));
}

#[test]
fn branches_of_gemma3() {
    check_branches(&head_64("gemma3"));
}

/// A recurrent state is copied and dropped whole: it cannot be cut back, and says so.
fn whole_branches() -> Vec<Step> {
    let t = tokens(60, 9);
    vec![
        Step::tokens(&t[..12], 0, 0),
        copy(0, 1, -1),
        copy(0, 2, -1),
        Step::State,
        Step::tokens(&t[12..18], 12, 0),
        Step::tokens(&t[18..23], 12, 1),
        remove(0, 15, -1),
        remove(2, -1, -1),
        copy(1, 2, -1),
        Step::State,
        Step::tokens(&t[23..29], 17, 2),
        remove(0, -1, -1),
        remove(1, -1, -1),
        Step::tokens(&t[29..30], 23, 2),
        Step::State,
        Step::tokens(&t[30..40], 0, 3),
        Step::State,
        Step::Clear,
        Step::tokens(&t[40..45], 0, 1),
        Step::State,
    ]
}

#[test]
fn branches_of_qwen35() {
    let mut pair = Pair::new(&Synth::new("qwen35"));
    for kv_unified in [true, false] {
        let cell = Cell {
            params: Params {
                n_seq_max: 4,
                kv_unified,
                n_ubatch: 8,
                ..Params::default()
            },
            steps: whole_branches(),
        };
        let path = pair.path.clone();
        let (base, theirs) = pair.run(None, &path, &cell);
        assert_eq!((&base.error, &theirs.error), (&None, &None));
        assert!(base.outputs == theirs.outputs && base.rets == theirs.rets);
        assert_eq!(base.rets[6], 1, "a recurrent state was cut back");
        for spec in blocks(pair.n_layer()) {
            check(&mut pair, &spec, &cell, &base);
        }
    }
}

/// Four sequences in one batch give what each gives alone, as far as they do on an unpatched
/// llama.cpp.
#[test]
fn four_sequences_and_one() {
    for arch in ["llama", "qwen2", "qwen3", "gemma3"] {
        let mut pair = Pair::new(&Synth::new(arch));
        let prompt = tokens(20, 1);
        let branch: Vec<Vec<i32>> = (0..4).map(|s| tokens(8, 10 + s)).collect();
        let rows: Vec<&[i32]> = branch.iter().map(Vec::as_slice).collect();
        for kv_unified in [true, false] {
            let params = Params {
                n_seq_max: 4,
                n_ctx: 1024,
                kv_unified,
                ..Params::default()
            };
            let together = Cell {
                params: params.clone(),
                steps: vec![
                    Step::tokens(&prompt, 0, 0),
                    copy(0, 1, -1),
                    copy(0, 2, -1),
                    copy(0, 3, -1),
                    Step::sequences(&rows, 20),
                ],
            };
            for spec in [spec("2,4"), spec("0,6"), spec("1,3;4,5")] {
                let twin = pair.twin(&spec);
                let (ours, theirs) = pair.run(Some(&spec), &twin, &together);
                assert!(ours.ok() == theirs.ok(), "{arch} {spec}");
                for (seq, row) in rows.iter().enumerate() {
                    let alone = Cell {
                        params: Params {
                            n_seq_max: 1,
                            n_ctx: 256,
                            ..params.clone()
                        },
                        steps: vec![Step::tokens(&prompt, 0, 0), Step::tokens(row, 20, 0)],
                    };
                    let (our_one, their_one) = pair.run(Some(&spec), &twin, &alone);
                    assert!(our_one.ok() == their_one.ok(), "{arch} {spec}");
                    // outputs are interleaved: token by token, sequence by sequence
                    let n = ours.outputs[4].len() / 32;
                    let mine: Vec<f32> = (0..8)
                        .flat_map(|i| floats(&ours.outputs[4][(4 * i + seq) * n..][..n]))
                        .collect();
                    let one = floats(&our_one.outputs[1]);
                    let worst = mine.iter().zip(&one).map(|(a, b)| (a - b).abs());
                    let worst = worst.fold(0.0, f32::max);
                    assert!(worst < 1e-4, "{arch} {spec} sequence {seq}: {worst}");
                }
            }
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (floats, _) = bytes.as_chunks();
    floats.iter().map(|&b| f32::from_le_bytes(b)).collect()
}
