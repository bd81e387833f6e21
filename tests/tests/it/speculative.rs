//! Speculative decoding under a plan gives the text that decoding without it gives.

use std::path::Path;
use std::thread;

use rys::{Model, ModelParams};
use rys_tests::expand::expand;
use rys_tests::graph::layer_inputs;
use rys_tests::synth::{self, Synth};
use rys_tests::{scratch, server};
use serde_json::{Value, json};
use xtask::server::Server;

use crate::pair::{spec, tokens};

const N_SLOTS: usize = 4;
const N_PREDICT: usize = 250;

/// What two requests of each slot gave, the second one going on from the first.
#[derive(Debug, Default)]
struct Answers {
    tokens: Vec<Vec<i32>>,
    /// Tokens of the second prompts that had to be computed.
    n_prompt: Vec<u64>,
    drafted: u64,
    accepted: u64,
    /// What the log says of the context that drafts.
    draft_log: Vec<String>,
    /// Whether a draft is taken back by a checkpoint rather than by a cut.
    checkpoints: bool,
}

impl Answers {
    fn rate(&self) -> f64 {
        self.accepted as f64 / self.drafted as f64
    }
}

/// Greedy answers in four slots at once.
fn ask(model: &Path, args: &[&str]) -> Answers {
    let model = model.to_str().unwrap();
    // batches of other sizes round otherwise; with f32 this is too little to change a token
    let base = "-c 4096 -np 4 -t 1 -tb 1 -fit off --no-warmup -lv 4 -ctk f32 -ctv f32 -ctkd f32 -ctvd f32 -fa off -m";
    let base: Vec<&str> = base.split(' ').chain([model]).collect();
    let server = Server::start(&server::program(), &[&base, args].concat()).unwrap();
    let mut all = Answers::default();
    let mut prompts: Vec<Vec<i32>> = (0..N_SLOTS)
        .map(|slot| tokens(20 + 7 * slot, slot as u64))
        .collect();
    for turn in 0..2 {
        let answers: Vec<Value> = thread::scope(|scope| {
            let running: Vec<_> = (0..N_SLOTS)
                .map(|slot| {
                    let body = json!({
                        "prompt": prompts[slot], "n_predict": N_PREDICT, "id_slot": slot,
                        "temperature": 0, "ignore_eos": true, "return_tokens": true,
                    });
                    let server = &server;
                    scope.spawn(move || server.post("/completion", &body).unwrap())
                })
                .collect();
            let answers = running.into_iter().map(|r| r.join().unwrap());
            answers
                .map(|(status, body)| {
                    assert_eq!(status, 200, "{body}");
                    body
                })
                .collect()
        });
        for (slot, answer) in answers.iter().enumerate() {
            let tokens: Vec<i32> = serde_json::from_value(answer["tokens"].clone()).unwrap();
            assert_eq!(tokens.len(), N_PREDICT);
            let timing = |name: &str| answer["timings"][name].as_u64();
            all.drafted += timing("draft_n").unwrap_or(0);
            all.accepted += timing("draft_n_accepted").unwrap_or(0);
            if turn == 1 {
                all.n_prompt.push(timing("prompt_n").unwrap());
            }
            prompts[slot].extend(&tokens);
            prompts[slot].extend([7, 8, 9]);
            all.tokens.push(tokens);
        }
    }
    let log = server.log();
    all.draft_log = draft_log(&log);
    all.checkpoints = log.contains("speculative decoding will use checkpoints");
    all
}

/// Sizes and numbers that the log has after the draft context was begun.
fn draft_log(log: &str) -> Vec<String> {
    let begun = ["creating MTP draft context", "loading draft model"];
    log.lines()
        .skip_while(|l| !begun.iter().any(|b| l.contains(b)))
        .take_while(|l| !l.contains("adding speculative implementation"))
        .filter(|l| {
            ["llama_context:", "llama_kv_cache", "llama_memory"]
                .iter()
                .any(|p| l.contains(p))
        })
        // without the time and addresses
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(_, l)| l.split(" k = 0x").next())
        .map(|l| l.trim().to_owned())
        .collect()
}

/// Asks without drafts and with them, without a plan and with it, and asks the expanded file.
fn check(target: &Path, plan: &str, draft: &[&str], checkpoints: bool) {
    check_twin(target, plan, draft, draft, checkpoints);
}

/// The same, with other drafts for the expanded file.
fn check_twin(target: &Path, plan: &str, draft: &[&str], twin_draft: &[&str], checkpoints: bool) {
    let model = Model::load(target, ModelParams::new()).unwrap();
    let twin = target.with_file_name("twin.gguf");
    expand(target, model.plan(&spec(plan)).unwrap().as_slice(), &twin);
    drop(model);

    let off = ask(target, &[]);
    let on = ask(target, &["-rl", plan]);
    let off_drafted = ask(target, draft);
    let on_drafted = ask(target, &[draft, &["-rl", plan]].concat());
    let twin_drafted = ask(&twin, twin_draft);

    assert!(off.tokens == off_drafted.tokens, "without a plan");
    assert!(on.tokens == on_drafted.tokens, "with a plan");
    assert!(on.tokens == twin_drafted.tokens, "the expanded file");
    assert!(off.tokens != on.tokens, "the plan changes nothing");
    assert_eq!((off.drafted, on.drafted), (0, 0));
    println!(
        "{draft:?}: accepted {:.0} % of {} without a plan, {:.0} % of {} with {plan}",
        100.0 * off_drafted.rate(),
        off_drafted.drafted,
        100.0 * on_drafted.rate(),
        on_drafted.drafted
    );
    // accepted and refused, both often
    for rate in [off_drafted.rate(), on_drafted.rate()] {
        assert!((0.2..0.99).contains(&rate), "{rate}");
    }
    // what drafts sees what it would see beside the expanded file; EAGLE-3 drafts otherwise when the slots'
    // requests meet otherwise
    let counts = |a: &Answers| (a.drafted, a.accepted);
    if draft == twin_draft {
        assert_eq!(counts(&on_drafted), counts(&twin_drafted));
    } else {
        let difference = on_drafted.rate() - twin_drafted.rate();
        assert!(difference.abs() < 0.1, "{difference}");
    }
    for drafted in [&off_drafted, &on_drafted] {
        assert_eq!(drafted.checkpoints, checkpoints);
    }
    assert_eq!(off.n_prompt, on.n_prompt);
    assert_eq!(off_drafted.n_prompt, on_drafted.n_prompt);

    assert!(!off_drafted.draft_log.is_empty());
    assert_eq!(off_drafted.draft_log, on_drafted.draft_log);
}

/// A model with an MTP block that foresees it.
fn mtp(arch: &'static str, residual: f32) -> Synth {
    Synth {
        residual,
        ..Synth::new(arch)
    }
    .mtp()
}

#[test]
fn mtp_of_qwen35() {
    let dir = scratch();
    check(
        &mtp("qwen35", 0.1).write(dir.path()),
        "2-7",
        &["--spec-type", "draft-mtp"],
        false,
    );
}

#[test]
fn mtp_of_qwen35moe() {
    let dir = scratch();
    check(
        &mtp("qwen35moe", 0.1).write(dir.path()),
        "2-7",
        &["--spec-type", "draft-mtp"],
        false,
    );
}

/// Its states cannot be rolled back: the server speculates, keeps a checkpoint, restores it, goes on.
#[test]
fn mtp_of_qwen3next() {
    let dir = scratch();
    check(
        &mtp("qwen3next", 0.1).write(dir.path()),
        "2-7",
        &["--spec-type", "draft-mtp"],
        true,
    );
}

/// A model of its own drafts, and never by the plan.
#[test]
fn draft_model() {
    let dir = scratch();
    let draft = Synth {
        n_layer: 2,
        residual: 0.1,
        ..Synth::new("llama")
    };
    let draft = draft.write(dir.path());
    let draft = [
        "--spec-type",
        "draft-simple",
        "-md",
        draft.to_str().unwrap(),
    ];
    for (arch, residual, plan, checkpoints) in
        [("qwen35", 0.1, "2-7", true), ("gemma4", 0.3, "2-4", false)]
    {
        let target = Synth {
            residual,
            ..Synth::new(arch)
        };
        check(&target.write(dir.path()), plan, &draft, checkpoints);
    }
}

/// Reads the KV cells of its target.
#[test]
fn gemma4_assistant() {
    let dir = scratch();
    let residual = 0.3;
    let draft = Synth {
        residual,
        ..Synth::new("gemma4-assistant")
    };
    let draft = draft.write(dir.path());
    let draft = ["--spec-type", "draft-mtp", "-md", draft.to_str().unwrap()];
    let target = Synth {
        residual,
        ..Synth::new("gemma4")
    };
    let target = target.write(dir.path());
    check(&target, "2-4", &draft, false);
    // the layers that the assistant reads
    check(&target, "5-7", &draft, false);
}

/// A model that drafts from the inputs of its target's layers 1, 3 and 4: of their last passes.
#[test]
fn eagle3() {
    let dir = scratch();
    let draft = |layers: [u32; 3], seed_dir: &str| {
        let dir = dir.path().join(seed_dir);
        std::fs::create_dir_all(&dir).unwrap();
        let synth = Synth {
            residual: 0.1,
            ..Synth::new("eagle3")
        };
        synth
            .with("target_layers", synth::Value::U32s(layers.into()))
            .write(&dir)
    };
    for arch in ["llama", "qwen35"] {
        let target = Synth {
            residual: 0.08,
            ..Synth::new(arch)
        };
        let target = target.write(dir.path());
        let plan = Model::load(&target, ModelParams::new()).unwrap();
        let plan = plan.plan(&spec("2-4")).unwrap();
        let last = |il: u32| plan.as_slice().iter().rposition(|&src| src == il).unwrap() as u32;
        let ours = draft([1, 3, 4], "plan");
        let theirs = draft([1, 3, 4].map(last), "twin");
        let args = |path: &Path| -> [String; 4] {
            ["--spec-type", "draft-eagle3", "-md", path.to_str().unwrap()].map(str::to_owned)
        };
        let (ours, theirs) = (args(&ours), args(&theirs));
        check_twin(
            &target,
            "2-4",
            &ours.each_ref().map(|s| &s[..]),
            &theirs.each_ref().map(|s| &s[..]),
            false,
        );
    }
}

/// Models that draft from the inputs of their target's layers (EAGLE-3, DFlash) name source layers, and
/// get the input of the last pass.
#[test]
fn layer_inputs_of_the_last_pass() {
    for arch in ["llama", "qwen3", "qwen35", "gemma4"] {
        let dir = scratch();
        let path = Synth::new(arch).write(dir.path());
        let model = Model::load(&path, ModelParams::new()).unwrap();
        let tokens = tokens(9, 1);
        let base = layer_inputs(&model, None, &tokens);
        for text in ["1,4", "2,3;3,5", "0,6"] {
            let spec = spec(text);
            let plan = model.plan(&spec).unwrap();
            let twin = dir.path().join(format!("{text}.gguf"));
            expand(&path, plan.as_slice(), &twin);
            let twin = Model::load(&twin, ModelParams::new()).unwrap();
            let expanded = layer_inputs(&twin, None, &tokens);
            let found = layer_inputs(&model, Some(&spec), &tokens);
            for (il, input) in (0..).zip(&found) {
                let last = plan.as_slice().iter().rposition(|&src| src == il).unwrap();
                assert!(*input == expanded[last], "{arch} {text}: layer {il}");
            }
            assert!(found != base);
        }
    }
}
