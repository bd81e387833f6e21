//! Several contexts on one model.

use std::collections::VecDeque;
use std::thread;

use rys::{Context, ContextParams, Error, LoraAdapter, Model, Sampler, SamplerBuilder};
use tempfile::TempDir;

use crate::tiny::{context, model, prompt};
use crate::writer::Writer;

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

/// A context sizes its graphs by the adapters that its model has loaded.
#[test]
fn adapters_come_and_go_while_contexts_compute() {
    let dir = TempDir::new().unwrap();
    let path = Writer::lora(2).save(&dir, "lora.gguf");
    let load = || LoraAdapter::load(&model(), &path).unwrap();
    let lora = load();
    let mut ctx = context("2,4");
    let plain = prompt(&mut ctx, 0);
    ctx.set_loras(&[(&lora, 1.0)]).unwrap();
    ctx.clear(true).unwrap();
    let adapted = prompt(&mut ctx, 0);
    // a long list takes long to go through
    let mut loaded: VecDeque<_> = (0..1000).map(|_| load()).collect();
    thread::scope(|scope| {
        let compute = || {
            let mut ctx = context("2,4");
            for i in 0..200 {
                let (loras, expected) = match i % 2 {
                    0 => (&[(&lora, 1.0)][..], &adapted),
                    _ => (&[][..], &plain),
                };
                // the next batch makes new graphs
                ctx.set_loras(loras).unwrap();
                ctx.clear(true).unwrap();
                assert_eq!(&prompt(&mut ctx, 0), expected, "{i}");
            }
        };
        let computing: Vec<_> = (0..4).map(|_| scope.spawn(compute)).collect();
        while !computing.iter().all(|thread| thread.is_finished()) {
            loaded.push_back(load());
            loaded.pop_front();
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
