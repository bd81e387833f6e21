//! Real models.

use std::path::PathBuf;

use rys::Model;
use rys_tests::job::{Params, Step};
use rys_tests::{real, scratch};

use crate::off::text_tokens;
use crate::pair::{Cell, Pair, spec};

/// A real model against its expanded file, through prompt batches and single tokens.
fn check(path: PathBuf, specs: &[&str], params: &Params, steps: fn(&Model) -> Vec<Step>) {
    let mut pair = Pair::of(scratch(), path);
    let cell = Cell {
        params: params.clone(),
        steps: steps(&pair.model),
    };
    let base = pair.base(&cell);
    for text in specs {
        let spec = spec(text);
        pair.check(&spec, &cell, &base);
        std::fs::remove_file(pair.twin(&spec)).unwrap();
    }
}

fn short_steps(model: &Model) -> Vec<Step> {
    let t = text_tokens(model, 60);
    let mut steps = vec![
        Step::tokens(&t[..37], 0, 0),
        Step::tokens(&t[37..50], 37, 0),
    ];
    steps.extend((50..60).map(|i| Step::tokens(&t[i..=i], i as i32, 0)));
    steps
}

/// A text longer than window and batch together, with outputs at its end.
fn long_steps(model: &Model) -> Vec<Step> {
    let t = text_tokens(model, 900);
    let mut steps = Vec::new();
    for at in (0..880).step_by(110) {
        let mut step = Step::tokens(&t[at..at + 110], at as i32, 0);
        if let Step::Decode { output, .. } = &mut step {
            output[..109].fill(0);
        }
        steps.push(step);
    }
    steps.extend((880..900).map(|i| Step::tokens(&t[i..=i], i as i32, 0)));
    steps
}

#[test]
fn smollm2() {
    let specs = ["10,14", "0,30", "29,30", "5,9;9,12"];
    check(real::smollm2(), &specs, &Params::default(), short_steps);
}

#[test]
fn gemma3() {
    // one global layer, one sliding-window layer, both kinds, and a whole period
    let specs = ["5,6", "3,4", "2,9", "6,12"];
    check(real::gemma3(), &specs, &Params::default(), short_steps);
}

#[test]
fn gemma3_recycled_cells() {
    let params = Params {
        n_ctx: 1024,
        n_ubatch: 128,
        swa_full: false,
        ..Params::default()
    };
    check(real::gemma3(), &["4,7"], &params, long_steps);
}
