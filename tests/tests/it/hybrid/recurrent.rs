//! The recurrent state of every pass is right after everything that can be done to a sequence.

use rys_tests::job::{Params, Step};
use rys_tests::kept::PARTIAL_ONLY;
use rys_tests::synth::Synth;

use crate::pair::{Cell, Pair, spec, tokens};

/// The blocks that these tests repeat: one recurrent layer, one of attention, both kinds, several
/// blocks, everything.
const SPECS: [&str; 5] = ["1,2", "3,4", "2,7", "1,2;3,4;4,7", "0,8"];

pub const ARCHS: [&str; 3] = ["qwen35", "qwen35moe", "qwen3next"];

/// Runs steps with some plans, whose rets must be these.
fn check(params: &Params, steps: Vec<Step>, rets: &[i32]) {
    check_on(&ARCHS, params, steps, rets);
}

fn check_on(archs: &[&'static str], params: &Params, steps: Vec<Step>, rets: &[i32]) {
    for arch in archs.iter().copied() {
        let mut pair = Pair::new(&Synth::new(arch));
        let cell = Cell {
            params: params.clone(),
            steps: steps.clone(),
        };
        for text in SPECS {
            let spec = spec(text);
            let twin = pair.twin(&spec);
            let (ours, theirs) = pair.run(Some(&spec), &twin, &cell);
            assert_eq!(
                (&ours.error, &theirs.error),
                (&None, &None),
                "{arch} {text}"
            );
            assert_eq!(ours.rets, rets, "{arch} {text}");
            assert_eq!(theirs.rets, rets, "{arch} {text}");
            let mut outputs = ours.outputs.iter().zip(&theirs.outputs).enumerate();
            let different = outputs.find(|(_, (a, b))| a != b).map(|(i, _)| i);
            assert_eq!(different, None, "{arch} {text}");
            assert!(ours.logits().iter().all(|l| l.is_finite()));
        }
    }
}

fn ok(steps: &[Step]) -> Vec<i32> {
    vec![0; steps.len()]
}

#[test]
fn two_hundred_single_tokens() {
    let t = tokens(230, 3);
    let mut steps = vec![Step::tokens(&t[..30], 0, 0)];
    steps.extend((30..230).map(|i| Step::tokens(&t[i..=i], i as i32, 0)));
    let rets = ok(&steps);
    check(&Params::default(), steps, &rets);
}

/// Four sequences, together and in turn, one of them ended and begun again.
#[test]
fn four_sequences() {
    let t: Vec<_> = (0..4).map(|s| tokens(40, s)).collect();
    let part = |a: usize, b: usize| {
        let rows: Vec<&[i32]> = t.iter().map(|t| &t[a..b]).collect();
        Step::sequences(&rows, a as i32)
    };
    let mut steps = vec![part(0, 9), part(9, 10)];
    for (seq, t) in (0..4).zip(&t) {
        steps.push(Step::tokens(&t[10..13 + seq as usize], 10, seq));
        steps.push(Step::tokens(&t[20..21], 13 + seq, seq));
    }
    let whole = Step::SeqRm {
        seq: 2,
        p0: -1,
        p1: -1,
    };
    steps.extend([whole, Step::tokens(&t[2][5..19], 0, 2)]);
    steps.push(Step::tokens(&t[0][30..33], 14, 0));
    let rets = ok(&steps);
    for kv_unified in [false, true] {
        let params = Params {
            n_seq_max: 4,
            n_ubatch: 16,
            kv_unified,
            ..Params::default()
        };
        check(&params, steps.clone(), &rets);
    }
}

/// A copy goes its own way, and so does its origin.
#[test]
fn copied_sequence() {
    let t = tokens(40, 5);
    let steps = vec![
        Step::tokens(&t[..12], 0, 0),
        Step::SeqCp {
            seq: 0,
            dst: 1,
            p0: -1,
            p1: -1,
        },
        Step::tokens(&t[12..14], 12, 1),
        Step::tokens(&t[20..25], 12, 0),
        Step::sequences(&[&t[25..27], &t[27..29]], 17),
        Step::SeqRm {
            seq: 0,
            p0: -1,
            p1: -1,
        },
        Step::tokens(&t[30..31], 19, 1),
        Step::SeqCp {
            seq: 1,
            dst: 0,
            p0: -1,
            p1: -1,
        },
        Step::tokens(&t[31..34], 20, 0),
        Step::tokens(&t[34..36], 20, 1),
    ];
    // position 17 of sequence 1 does not follow its 13
    let steps: Vec<Step> = steps
        .into_iter()
        .enumerate()
        .map(|(i, step)| match i {
            4 => Step::tokens(&t[25..30], 14, 1),
            _ => step,
        })
        .collect();
    let rets = ok(&steps);
    for kv_unified in [false, true] {
        let params = Params {
            n_seq_max: 2,
            kv_unified,
            ..Params::default()
        };
        check(&params, steps.clone(), &rets);
    }
}

/// Without snapshots the end of a sequence cannot be cut; the whole can.
#[test]
fn cut_sequence() {
    let t = tokens(40, 7);
    let steps = vec![
        Step::tokens(&t[..12], 0, 0),
        Step::SeqRm {
            seq: 0,
            p0: 9,
            p1: -1,
        },
        Step::tokens(&t[12..14], 12, 0),
        Step::SeqRm {
            seq: 0,
            p0: 14,
            p1: -1,
        },
        Step::tokens(&t[14..15], 14, 0),
        Step::SeqRm {
            seq: 0,
            p0: -1,
            p1: -1,
        },
        Step::tokens(&t[20..30], 0, 0),
    ];
    check(&Params::default(), steps, &[0, 1, 0, 0, 0, 0, 0]);
}

/// As speculative decoding does it: a draft is decoded, a part of it removed.
#[test]
fn rolled_back_sequence() {
    let t = tokens(60, 9);
    let cut = |p0| Step::SeqRm { seq: 0, p0, p1: -1 };
    let steps = vec![
        Step::tokens(&t[..12], 0, 0),
        Step::tokens(&t[12..17], 12, 0),
        cut(14),
        Step::tokens(&t[20..25], 14, 0),
        cut(18),
        Step::tokens(&t[30..31], 18, 0),
        Step::tokens(&t[31..36], 19, 0),
        cut(20),
        Step::tokens(&t[40..44], 20, 0),
        // more than there are snapshots
        cut(10),
        Step::tokens(&t[44..45], 24, 0),
    ];
    let mut rets = ok(&steps);
    rets[9] = 1;
    for n_seq_max in [1, 4] {
        let params = Params {
            n_rs_seq: 4,
            n_seq_max,
            ..Params::default()
        };
        check_on(&["qwen35", "qwen35moe"], &params, steps.clone(), &rets);
        // upstream rolls back no other one
        check_on(&["qwen3next"], &params, steps[..3].into(), &[0, 0, 1]);
    }
}

/// Checkpoints as the server keeps them, and whole sequences, into the same and another sequence.
#[test]
fn kept_and_restored() {
    let t = tokens(60, 11);
    let keep = |slot, flags| Step::Keep {
        seq: 0,
        flags,
        slot,
    };
    let restore = |seq, slot, flags| Step::Restore { seq, flags, slot };
    let cut = |p0| Step::SeqRm { seq: 0, p0, p1: -1 };
    let steps = vec![
        Step::tokens(&t[..12], 0, 0),
        keep(0, PARTIAL_ONLY),
        keep(1, 0),
        Step::tokens(&t[12..20], 12, 0),
        // the server's way: the checkpoint back, then the cells after it cut
        restore(0, 0, PARTIAL_ONLY),
        cut(12),
        Step::tokens(&t[20..24], 12, 0),
        Step::tokens(&t[24..25], 16, 0),
        restore(1, 1, 0),
        Step::tokens(&t[25..29], 12, 1),
        Step::tokens(&t[29..30], 17, 0),
        restore(0, 1, 0),
        Step::tokens(&t[12..20], 12, 0),
    ];
    let rets = ok(&steps);
    for n_rs_seq in [0, 3] {
        let params = Params {
            n_seq_max: 2,
            n_rs_seq,
            ..Params::default()
        };
        check(&params, steps.clone(), &rets);
    }
}
