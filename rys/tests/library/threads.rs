//! Several contexts on one model.

use std::thread;

use rys::{Context, ContextParams, Error, LoraAdapter, Model, Sampler, SamplerBuilder};

use crate::tiny::{context, prompt};

#[test]
fn contexts_made_and_used_on_many_threads_agree() {
    let specs = ["", "2,4", "0,6", "1,2;4,5"];
    let expected: Vec<_> = specs.iter().map(|s| prompt(&mut context(s), 0)).collect();
    thread::scope(|scope| {
        for i in 0..8 {
            let (spec, expected) = (specs[i % 4], &expected[i % 4]);
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(&prompt(&mut context(spec), 0), expected, "{spec}");
                }
            });
        }
    });
}

#[test]
fn a_context_moves_between_threads() {
    let mut ctx = context("2,4");
    let expected = prompt(&mut ctx, 0);
    let mut ctx = thread::spawn(move || {
        ctx.clear(true).unwrap();
        ctx
    })
    .join()
    .unwrap();
    assert_eq!(prompt(&mut ctx, 0), expected);
}

#[test]
fn handles_can_be_sent_and_shared() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Context>();
    send::<Sampler>();
    send::<SamplerBuilder>();
    send::<Model>();
    sync::<Model>();
    send::<LoraAdapter>();
    sync::<LoraAdapter>();
    send::<ContextParams>();
    sync::<ContextParams>();
    send::<Error>();
    sync::<Error>();
}
