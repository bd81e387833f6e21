//! Saved state belongs to a plan and a model, also in the server's slots.

use std::fs;
use std::path::Path;

use rys_tests::job::{Job, Params, Step};
use rys_tests::patched;
use rys_tests::real;
use rys_tests::scratch;
use rys_tests::server::{Completion, Server, complete, start};
use rys_tests::synth::Synth;
use serde_json::{Value, json};

use crate::pair::{Pair, spec, tokens};

/// Files of a plan are refused by a llama.cpp that knows no plans, before it touches its context.
#[test]
fn stock_refuses_files_of_a_plan() {
    for arch in ["llama", "gemma3"] {
        let mut pair = Pair::new(&Synth::new(arch));
        let t = tokens(24, 3);
        let params = Params::default();
        let file = |part: &str| pair.dir.path().join(part);
        let (all, seq) = (file("all"), file("seq"));
        let save = [
            Step::tokens(&t[..20], 0, 0),
            Step::SaveState { path: all.clone() },
            Step::SaveSeq {
                seq: 0,
                path: seq.clone(),
            },
        ];
        let job = Job::new(&pair.path, &params, &save);
        patched::run(&pair.model, &job, Some(&spec("2,4"))).ok();

        let load = [
            Step::tokens(&t[..9], 0, 0),
            Step::State,
            Step::LoadState { path: all },
            Step::LoadSeq { seq: 0, path: seq },
            Step::State,
        ];
        // also by the twin, whose cache has the very same shape
        for model in [pair.path.clone(), pair.twin(&spec("2,4"))] {
            let theirs = pair.reference.run(&Job::new(model, &params, &load));
            assert_eq!(theirs.error, None);
            assert_eq!(theirs.rets, [0, 0, 1, 1, 0], "{arch}");
            assert!(theirs.outputs[1] == theirs.outputs[4], "{arch}: touched");
        }
    }
}

/// Models that differ in their weights alone are different models.
#[test]
fn a_fine_tune_is_another_model() {
    let synth = Synth::new("llama");
    let one = Pair::new(&synth);
    let other = Pair::new(&Synth {
        seed: 1,
        ..synth.clone()
    });
    let same = Pair::new(&synth);
    let plan = spec("2,4");
    let filled = |pair: &Pair| {
        let mut ctx = patched::context(&pair.model, &Params::default(), Some(&plan)).unwrap();
        patched::run_step(&mut ctx, &Step::tokens(&tokens(20, 1), 0, 0)).unwrap();
        ctx
    };
    let (whole, seq) = {
        let mut ctx = filled(&one);
        (ctx.state().unwrap(), ctx.seq_state(0).unwrap())
    };
    let mut ctx = filled(&other);
    let before = ctx.state().unwrap();
    for result in [ctx.set_state(&whole), ctx.set_seq_state(0, &seq)] {
        let reason = result.unwrap_err().to_string();
        assert!(
            reason.contains("use the plan and the model it was saved with"),
            "{reason}"
        );
    }
    assert!(ctx.state().unwrap() == before);
    // and the same file loaded again is the same model
    let mut ctx = filled(&same);
    ctx.set_state(&whole).unwrap();
    ctx.set_seq_state(0, &seq).unwrap();
}

const STORY: &str = "The ferry leaves the harbour at seven. On board are a doctor, two students and a \
    man with a parcel that he will not put down. The captain";
const MORE: &str = " looks at the clock and then at the sky. He says to the man:";

fn serve(spec: Option<&str>, dir: &Path) -> Server {
    let dir = dir.to_str().unwrap();
    let args = ["-c", "1024", "-np", "2", "--slot-save-path", dir];
    start(&real::smollm2(), spec, &args)
}

fn slot(server: &Server, action: &str, file: &str) -> (u16, Value) {
    let path = format!("/slots/0?action={action}");
    server.post(&path, &json!({ "filename": file })).unwrap()
}

/// The story goes on in a slot, from what is in it.
fn goes_on(server: &Server, slot: u32) -> Completion {
    let prompt = format!("{STORY}{MORE}");
    complete(server, &prompt, 4, &json!({ "id_slot": slot }))
}

/// An error, for this reason or one without a word of plans; the slot then computes all anew.
fn refuses(server: &Server, file: &str, reason: Option<&str>, expected: &Value) {
    let (status, answer) = slot(server, "restore", file);
    assert!((400..600).contains(&status), "{file}: {status} {answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    match reason {
        Some(reason) => assert!(message.contains(reason), "{file}: {message}"),
        None => assert!(!message.contains("repeat"), "{file}: {message}"),
    }
    let after = goes_on(server, 0);
    assert_eq!((&after.probs, after.n_cached), (expected, 0), "{file}");
}

/// A slot of the base is no slot of a plan, and a damaged or missing file no slot at all.
#[test]
fn slots() {
    let dir = scratch();
    let server = serve(None, dir.path());
    complete(&server, STORY, 1, &json!({ "id_slot": 0 }));
    assert_eq!(slot(&server, "save", "base").0, 200);
    let base = goes_on(&server, 0);
    drop(server);

    let server = serve(Some("10,14"), dir.path());
    let fresh = goes_on(&server, 1).probs;
    let reason =
        "the state was saved with no repeated layers, this context has repeat-layers=10,14";
    refuses(&server, "base", Some(reason), &fresh);
    refuses(&server, "missing", None, &fresh);
    assert_eq!(slot(&server, "save", "plan").0, 200);
    let mut bytes = fs::read(dir.path().join("plan")).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(dir.path().join("half"), bytes).unwrap();
    refuses(&server, "half", None, &fresh);
    drop(server);

    let server = serve(None, dir.path());
    let fresh = goes_on(&server, 1).probs;
    let reason = "the state was saved with repeated layers, this context has no repeated layers";
    refuses(&server, "plan", Some(reason), &fresh);
    refuses(&server, "missing", None, &fresh);
    assert_eq!(slot(&server, "restore", "base").0, 200);
    let again = goes_on(&server, 0);
    assert_eq!(again, base);
    assert!(again.n_cached > 20 && again.n_prompt < 20, "{again:?}");
}
