//! Without a plan nothing differs from an unpatched llama.cpp.

use std::fs;
use std::path::Path;

use rys::{Model, ModelParams};
use rys_tests::job::{Job, Outcome, Params, Step};
use rys_tests::log::{capture, lines, value};
use rys_tests::reference::Reference;
use rys_tests::synth::Synth;
use rys_tests::{patched, real, scratch};

use crate::pair::tokens;

/// Tokens of a text; longer than any test needs.
pub fn text_tokens(model: &Model, n: usize) -> Vec<i32> {
    let text = "The layers of a language model are not all alike. The first ones turn words into \
        meanings, the last ones turn meanings into words, and between the two lies a stretch that \
        can be run again: what leaves it looks much like what enters it. A surveyor who walks the \
        same ridge twice sees the second time what the first had only hinted at: 1, 2, 3, 5, 8, 13.\n";
    let mut tokens = model.tokenize(text, true, false).unwrap();
    let more = model.tokenize(text, false, false).unwrap();
    while tokens.len() < n {
        tokens.extend(&more);
    }
    tokens.truncate(n);
    tokens
}

/// Uneven batches, then single tokens, with an output for every token.
pub fn uneven(tokens: &[i32]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = 0;
    for n in [7, 1, 33, 2, 50] {
        steps.push(Step::tokens(&tokens[at..at + n], at as i32, 0));
        at += n;
    }
    for i in at..tokens.len() {
        steps.push(Step::tokens(&tokens[i..=i], i as i32, 0));
    }
    steps
}

/// Logits, return values, and every line of both logs, with the sizes that they name.
fn same(ours: &Outcome, theirs: &Outcome) {
    assert_eq!(ours.ok().len(), theirs.ok().len());
    assert!(ours.outputs == theirs.outputs, "logits differ");
    let (our_lines, their_lines) = (lines(&ours.log), lines(&theirs.log));
    assert_eq!(our_lines, their_lines);
    for what in ["max_nodes = ", "graph: nodes = ", "KV buffer size"] {
        assert!(
            our_lines.iter().any(|l| l.contains(what)),
            "no {what}: {our_lines:#?}"
        );
    }
    assert!(value(&our_lines, "max_nodes = ").parse::<u32>().unwrap() > 0);
}

fn check(path: &Path, params: &[Params], tokens: fn(&Model) -> Vec<i32>) {
    let (model, load_log) = capture(|| Model::load(path, ModelParams::new()).unwrap());
    let mut reference = Reference::start();
    let steps = uneven(&tokens(&model));
    for params in params {
        let job = Job {
            verbose: true,
            ..Job::new(path, params, &steps)
        };
        reference.send(&job);
        let ours = patched::run(&model, &job, None);
        let theirs = reference.receive();
        same(&ours, &theirs);
        assert_eq!(lines(&load_log), lines(&theirs.model_log));
    }
}

#[test]
fn smollm2() {
    let quantized = Params {
        type_k: rys::CacheType::Q8_0,
        type_v: rys::CacheType::Q8_0,
        n_ubatch: 16,
        ..Params::default()
    };
    let without_flash = Params {
        flash_attn: false,
        ..Params::default()
    };
    check(
        &real::smollm2(),
        &[Params::default(), without_flash, quantized],
        |model| text_tokens(model, 140),
    );
}

#[test]
fn gemma3() {
    let small_windows = Params {
        swa_full: false,
        n_ubatch: 16,
        ..Params::default()
    };
    check(
        &real::gemma3(),
        &[Params::default(), small_windows],
        |model| text_tokens(model, 140),
    );
}

/// Names in backticks in the line on architectures of `README.md`, without remarks in brackets.
fn documented_archs() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let text = fs::read_to_string(readme).unwrap();
    let (_, list) = text.split_once("- Architectures:").unwrap();
    let list = list.split("\n-").next().unwrap();
    let list = list.split("\n\n").next().unwrap();
    let plain: String = list
        .split('(')
        .map(|part| part.split_once(')').map_or(part, |(_, rest)| rest))
        .collect();
    plain
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The same of every architecture that can repeat layers.
#[test]
fn architectures() {
    let archs = rys::supported_archs();
    let sorted = |archs: &[String]| {
        let mut archs = archs.to_vec();
        archs.sort();
        archs
    };
    assert_eq!(sorted(&archs), sorted(&documented_archs()));
    for arch in archs {
        let dir = scratch();
        let path = Synth::new(arch.leak()).write(dir.path());
        let small = Params {
            n_seq_max: 2,
            swa_full: false,
            n_ubatch: 16,
            flash_attn: false,
            ..Params::default()
        };
        check(&path, &[Params::default(), small], |_| tokens(100, 5));
    }
}

/// Saved state is stock's, and stock's is read.
fn check_state(path: &Path, params: &Params, tokens: fn(&Model) -> Vec<i32>) {
    let model = Model::load(path, ModelParams::new()).unwrap();
    let mut reference = Reference::start();
    let dir = scratch();
    let tokens = tokens(&model);

    let job = |name: &str| {
        let steps = [
            Step::tokens(&tokens[..20], 0, 0),
            Step::State,
            Step::SeqState { seq: 0 },
            Step::SaveState {
                path: dir.path().join(format!("{name} all")),
            },
            Step::SaveSeq {
                seq: 0,
                path: dir.path().join(format!("{name} seq")),
            },
        ];
        Job::new(path, params, &steps)
    };
    let ours = patched::run(&model, &job("ours"), None);
    let theirs = reference.run(&job("theirs"));
    assert!(ours.ok() == theirs.ok());
    for part in ["all", "seq"] {
        let read = |who: &str| fs::read(dir.path().join(format!("{who} {part}"))).unwrap();
        assert!(read("ours") == read("theirs"), "{part}");
        assert!(!read("ours").is_empty());
    }

    // each side goes on from the other's file
    let goes_on = |load: Step| {
        let steps = [load, Step::tokens(&tokens[20..], 20, 0)];
        Job::new(path, params, &steps)
    };
    let all = |who: &str| Step::LoadState {
        path: dir.path().join(format!("{who} all")),
    };
    let seq = |who: &str| Step::LoadSeq {
        seq: 0,
        path: dir.path().join(format!("{who} seq")),
    };
    let ours = patched::run(&model, &goes_on(all("theirs")), None);
    let theirs = reference.run(&goes_on(all("ours")));
    assert!(ours.ok()[1] == theirs.ok()[1]);
    let ours = patched::run(&model, &goes_on(seq("theirs")), None);
    let theirs = reference.run(&goes_on(seq("ours")));
    assert!(ours.ok()[1] == theirs.ok()[1]);
    assert!(!ours.outputs[1].is_empty());
}

#[test]
fn state() {
    check_state(&real::smollm2(), &Params::default(), |model| {
        text_tokens(model, 24)
    });
}

#[test]
fn state_of_recurrent_layers_and_of_windows() {
    let dir = scratch();
    let windows = Params {
        swa_full: false,
        ..Params::default()
    };
    for (arch, params) in [("qwen35", Params::default()), ("gemma3", windows)] {
        let path = Synth::new(arch).write(dir.path());
        check_state(&path, &params, |_| tokens(24, 5));
    }
}
