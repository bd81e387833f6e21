//! Context shifts: K rows are turned once in each pass.

use rys::CacheType;
use rys_tests::job::{Job, Params, Step};
use rys_tests::patched;
use rys_tests::state::{Cache, caches};
use rys_tests::synth::Synth;

use super::{TYPES, add, check, head_64, remove};
use crate::pair::{Cell, Pair, blocks, spec, tokens};

/// Two context shifts, as the server does them: some of the oldest tokens go, the later ones move up.
fn shifts() -> Vec<Step> {
    let t = tokens(60, 5);
    vec![
        Step::tokens(&t[..40], 0, 0),
        Step::State,
        remove(0, 4, 16),
        add(0, 16, -12),
        Step::tokens(&t[40..41], 28, 0),
        Step::State,
        Step::tokens(&t[41..50], 29, 0),
        remove(0, 4, 10),
        add(0, 10, -6),
        Step::tokens(&t[50..], 32, 0),
        Step::State,
    ]
}

/// K rows are turned once in each pass, never twice, and never in one pass only.
fn check_shift(synth: &Synth, type_k: CacheType) {
    let mut pair = Pair::new(synth);
    for flash_attn in [true, false] {
        let cell = Cell {
            params: Params {
                flash_attn,
                type_k,
                n_ubatch: 16,
                ..Params::default()
            },
            steps: shifts(),
        };
        let path = pair.path.clone();
        let (base, theirs) = pair.run(None, &path, &cell);
        assert!(base.ok() == theirs.ok());

        for spec in blocks(pair.n_layer()) {
            check(&mut pair, &spec, &cell, &base);
        }
    }
}

/// Attention sees differences of positions only, so K rows that are shifted once are those of the
/// same tokens decoded at the later positions.
#[test]
fn shifted_rows() {
    let pair = Pair::new(&Synth::new("llama"));
    let t = tokens(21, 6);
    let spec = spec("1,3;4,5");
    let run = |steps: &[Step]| {
        let job = Job::new(&pair.path, &Params::default(), steps);
        let ours = patched::run(&pair.model, &job, Some(&spec));
        let state = ours.ok().last().unwrap();
        caches(state, true, 1).remove(0)
    };
    let state = Step::SeqState { seq: 0 };
    let (first, last) = (Step::tokens(&t[..20], 0, 0), Step::tokens(&t[20..], 50, 0));
    let before = run(&[first.clone(), state.clone()]);
    let shifted = run(&[first, add(0, 0, 30), last.clone(), state.clone()]);
    let fresh = run(&[Step::tokens(&t[..20], 30, 0), last, state]);
    assert_eq!(shifted.pos, fresh.pos);
    assert_eq!(shifted.k.len(), 9);
    let norm = |a: &[f32]| a.iter().map(|x| x * x).sum::<f32>().sqrt();
    for pass in 0..9 {
        for cell in 0..20 {
            let row = |cache: &Cache| halves(cache.k_row(pass, cell));
            let (before, shifted, fresh) = (row(&before), row(&shifted), row(&fresh));
            let distance = |other: &[f32]| {
                let d: Vec<f32> = shifted.iter().zip(other).map(|(a, b)| a - b).collect();
                norm(&d) / norm(&shifted)
            };
            assert!(
                distance(&fresh) < 0.01,
                "{pass} {cell}: {}",
                distance(&fresh)
            );
            assert!(
                distance(&before) > 0.1,
                "{pass} {cell}: {}",
                distance(&before)
            );
        }
    }
}

/// Numbers of half precision.
fn halves(bytes: &[u8]) -> Vec<f32> {
    let (halves, _) = bytes.as_chunks();
    let wide = |&b: &[u8; 2]| {
        let bits = u16::from_le_bytes(b);
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023) / 1024.0);
        let value = match exponent {
            0 => fraction * 2_f32.powi(-14),
            _ => (1.0 + fraction) * 2_f32.powi(exponent - 15),
        };
        if bits >> 15 == 1 { -value } else { value }
    };
    halves.iter().map(wide).collect()
}

#[test]
fn shift_llama() {
    check_shift(&Synth::new("llama"), CacheType::F16);
    for type_k in TYPES {
        check_shift(&head_64("llama"), type_k);
    }
}

/// Sliding windows shift in a cache of full size only.
#[test]
fn shift_gemma3() {
    check_shift(&Synth::new("gemma3"), CacheType::F16);
    for type_k in TYPES {
        check_shift(&head_64("gemma3"), type_k);
    }
}

/// What llama.cpp cannot shift is refused before it tries.
#[test]
fn no_shift() {
    let refused = |synth: &Synth, params: &Params, reason: &str| {
        let pair = Pair::new(synth);
        for spec in [None, Some(spec("2,4"))] {
            let mut ctx = patched::context(&pair.model, params, spec.as_ref()).unwrap();
            patched::run_step(&mut ctx, &Step::tokens(&tokens(20, 1), 0, 0)).unwrap();
            let before = ctx.state().unwrap();
            let error = patched::run_step(&mut ctx, &add(0, 5, 3)).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert!(ctx.state().unwrap() == before);
        }
    };
    let quantized = Params {
        type_k: CacheType::Q8_0,
        ..Params::default()
    };
    let windows = Params {
        swa_full: false,
        n_ctx: 512,
        n_ubatch: 32,
        ..Params::default()
    };
    refused(&Synth::new("llama"), &quantized, "multiples of 64");
    refused(&Synth::new("gemma3"), &windows, "needs swa_full");
    refused(
        &Synth::new("qwen35"),
        &Params::default(),
        "cannot move positions",
    );
}
