//! Samplers.

use rys::{Model, ModelParams, Sampler, SamplerBuilder};
use tempfile::TempDir;

use crate::tiny::{context, file, invalid, model, prompt};
use crate::writer::N_VOCAB;

#[test]
fn greedy_takes_the_largest_logit() {
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    let mut sampler = Sampler::greedy(&model()).unwrap();
    assert_eq!(
        sampler.sample(&mut ctx, -1).unwrap(),
        ctx.greedy(-1).unwrap()
    );
    assert_eq!(sampler.sample(&mut ctx, 7).unwrap(), ctx.greedy(7).unwrap());
}

#[test]
fn a_seed_repeats_its_choices() {
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    let mut run = |seed| {
        let builder = SamplerBuilder::new(&model()).unwrap();
        let mut sampler = builder
            .top_k(8)
            .unwrap()
            .temp(2.0)
            .unwrap()
            .dist(seed)
            .unwrap();
        (0..40)
            .map(|_| sampler.sample(&mut ctx, -1).unwrap())
            .collect::<Vec<_>>()
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    assert!(first.iter().all(|&t| (0..N_VOCAB as i32).contains(&t)));
}

#[test]
fn a_penalty_drives_the_choice_away() {
    let mut ctx = context("2,4");
    prompt(&mut ctx, 0);
    let builder = SamplerBuilder::new(&model()).unwrap();
    let mut sampler = builder
        .penalties(64, 1.0, 0.0, 1e6)
        .unwrap()
        .greedy()
        .unwrap();
    let best = sampler.sample(&mut ctx, -1).unwrap();
    assert_ne!(sampler.sample(&mut ctx, -1).unwrap(), best);
    sampler.reset().unwrap();
    sampler.accept(best).unwrap();
    assert_ne!(sampler.sample(&mut ctx, -1).unwrap(), best);
    sampler.reset().unwrap();
    assert_eq!(sampler.sample(&mut ctx, -1).unwrap(), best);
}

#[test]
fn wrong_uses_are_refused() {
    let mut ctx = context("");
    let mut sampler = Sampler::greedy(&model()).unwrap();
    sampler.sample(&mut ctx, -1).unwrap_err(); // nothing decoded yet
    prompt(&mut ctx, 0);
    sampler.sample(&mut ctx, 0).unwrap_err(); // no output asked for
    invalid(
        sampler.accept(16),
        "token 16 is not in the vocabulary; allowed are 0..16",
    );

    let dir = TempDir::new().unwrap();
    let other = Model::load(file(&dir), ModelParams::new()).unwrap();
    let mut sampler = Sampler::greedy(&other).unwrap();
    invalid(
        sampler.sample(&mut ctx, -1),
        "the sampler was made for another model",
    );

    let builder = || SamplerBuilder::new(&model()).unwrap();
    invalid(
        builder().temp(-1.0),
        "temp is -1; allowed are 0e0 to 3.4028235e38",
    );
    invalid(
        builder().top_p(f32::NAN, 1),
        "top_p is NaN; allowed are 0e0 to 1e0",
    );
    builder().min_p(1.5, 1).unwrap_err();
    builder().penalties(64, 0.0, 0.0, 0.0).unwrap_err();
    builder().mirostat_v2(1, 0.0, 0.1).unwrap_err();
    builder().grammar("root ::= \0", "root").unwrap_err();
}
