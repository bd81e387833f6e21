//! The server's caches of prompts: a plan gives what the expanded model gives.

use std::path::{Path, PathBuf};
use std::thread;

use rys::Header;
use rys_tests::expand::expand;
use rys_tests::server::{Completion, Server, complete, start};
use rys_tests::{real, scratch};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::spec;

const A: &str = "Once there was a lighthouse on a rock far out in the sea. Its keeper lit the lamp every \
    evening and wrote into a book which ships had passed.";
const B: &str = " One night the wind rose and the waves reached the door. The keeper counted the steps \
    to the lamp, as he did every night, and there was one more than before.";
const C: &str = " In the morning a small boat lay at the landing. Nobody was in it, but there was a \
    basket with bread, a letter without an address and a grey cat that looked hungry.";
const D: &str = " The keeper opened the letter. It said:";

/// The expanded file of a plan.
fn twin(model: &Path, text: &str) -> (TempDir, PathBuf) {
    let dir = scratch();
    let path = dir.path().join("twin.gguf");
    let plan = Header::read(model).unwrap().plan(&spec(text)).unwrap();
    expand(model, plan.as_slice(), &path);
    (dir, path)
}

/// The same requests to a server with a plan and to one with the twin.
fn check(
    model: &Path,
    text: &str,
    args: &[&str],
    session: fn(&Server) -> Vec<Completion>,
) -> Vec<Completion> {
    let (_dir, twin) = twin(model, text);
    let theirs = session(&start(&twin, None, args));
    let ours = session(&start(model, Some(text), args));
    assert_eq!(ours, theirs);
    ours
}

/// Prompts that begin alike, that lack a piece in the middle, and one that comes again after another.
fn prompts(server: &Server) -> Vec<Completion> {
    let ask = |prompt: String| complete(server, &prompt, 6, &json!({"n_cache_reuse": 16}));
    vec![
        ask(format!("{A}{B}{C}")),
        ask(format!("{A}{B}{C}{D}")),
        ask(format!("{A}{C}{D}")),
        ask(format!("{A}{B}{D}")),
        ask(format!("{C} {D}")),
        ask(format!("{A}{B}{D}")),
    ]
}

fn check_prompts(model: &Path, text: &str, args: &[&str]) {
    let answers = check(model, text, args, prompts);
    let n_cached: Vec<u64> = answers.iter().map(|a| a.n_cached).collect();
    let n_prompt: Vec<u64> = answers.iter().map(|a| a.n_prompt).collect();
    let shown = format!("{n_cached:?} of the cache, {n_prompt:?} computed");
    // a longer prompt; A and the moved C; A and the moved D; nothing known; from the host's cache
    assert_eq!(n_cached[0], 0, "{shown}");
    assert!(n_cached[1] > n_cached[2] && n_cached[2] > 60, "{shown}");
    assert!(n_prompt[2] < 30, "C is not moved: {shown}");
    assert!(n_cached[3] > 25, "{shown}");
    assert!(n_cached[5] > 60, "{shown}");
}

#[test]
fn prompts_of_smollm2() {
    for type_k in ["f16", "q8_0", "q4_0"] {
        let args = [
            "-c",
            "1024",
            "-np",
            "1",
            "--cache-reuse",
            "16",
            "-ctk",
            type_k,
        ];
        check_prompts(&real::smollm2(), "10,14", &args);
    }
}

#[test]
fn prompts_of_gemma3() {
    let args = [
        "-c",
        "1024",
        "-np",
        "1",
        "--cache-reuse",
        "16",
        "--swa-full",
    ];
    check_prompts(&real::gemma3(), "5,9", &args);
}

/// Windows forget: a prompt that ends earlier than the last one goes on from a checkpoint.
#[test]
fn checkpoints_of_gemma3() {
    fn session(server: &Server) -> Vec<Completion> {
        let story = format!("{A}{B}{C} ");
        [4, 7, 4]
            .map(|n| complete(server, &format!("{}{D}", story.repeat(n)), 4, &json!({})))
            .into()
    }
    let args = ["-c", "1024", "-np", "1", "-ub", "64", "-b", "64"];
    let answers = check(&real::gemma3(), "5,9", &args, session);
    let n_cached: Vec<u64> = answers.iter().map(|a| a.n_cached).collect();
    let n_all = |i: usize| answers[i].n_cached + answers[i].n_prompt;
    assert!(n_all(0) < 512 && n_all(1) > 700, "{answers:?}");
    assert!(n_cached[1] > 300 && n_cached[2] > 300, "{n_cached:?}");
}

/// An answer longer than the context: the server drops old tokens and moves the others, several times.
#[test]
fn context_shift() {
    fn long(server: &Server) -> Vec<Completion> {
        vec![complete(
            server,
            &format!("{A}{B}{C}{D}"),
            260,
            &json!({"ignore_eos": true}),
        )]
    }
    let args = ["-c", "256", "-np", "1", "--context-shift"];
    let (_dir, twin) = twin(&real::smollm2(), "10,14");
    let theirs = start(&twin, None, &args);
    let ours = start(&real::smollm2(), Some("10,14"), &args);
    let answer = long(&ours);
    assert!(answer == long(&theirs));
    assert!(ours.log().contains("context shift"), "{}", ours.log());
}

/// Four prompts that begin alike, one after the other in one slot or at once in four: the same
/// distributions, up to the rounding of batches of other sizes, for a plan and for its twin.
#[test]
fn four_slots() {
    fn ask(server: &Server, at_once: bool) -> Vec<Completion> {
        let tails = [
            B,
            C,
            " The lamp was red, and the keeper's name was",
            " Every ship that passed was listed with its",
        ];
        // in the cache of one slot before the others need it
        complete(server, A, 1, &json!({}));
        let ask = |tail: &str| complete(server, &format!("{A}{tail}"), 12, &json!({}));
        if at_once {
            thread::scope(|scope| {
                let asked = tails.map(|tail| scope.spawn(move || ask(tail)));
                asked.map(|a| a.join().unwrap()).into()
            })
        } else {
            tails.map(ask).into()
        }
    }
    let (_dir, twin) = twin(&real::smollm2(), "10,14");
    let model = real::smollm2();
    let one = ["-c", "1024", "-np", "1"];
    let our_one = ask(&start(&model, Some("10,14"), &one), false);
    assert_eq!(our_one, ask(&start(&twin, None, &one), false));
    for unified in ["-kvu", "-no-kvu"] {
        let four = ["-c", "4096", "-np", "4", unified];
        for server in [
            start(&twin, None, &four),
            start(&model, Some("10,14"), &four),
        ] {
            let answers = ask(&server, true);
            for (i, a) in answers.iter().enumerate() {
                for (j, b) in our_one.iter().enumerate() {
                    assert_eq!(alike(a, b), i == j, "{unified}: {a:?} {b:?}");
                }
            }
        }
    }
}

/// Whether the likely tokens at each place have about the same probabilities, as long as the texts
/// are the same: they part at a near tie only.
fn alike(a: &Completion, b: &Completion) -> bool {
    const SAME: f64 = 0.1;
    const TIE: f64 = 0.5;
    let of = |place: &Value, id: &Value| {
        let all = place["top_logprobs"].as_array().unwrap();
        all.iter()
            .find(|t| t["id"] == *id)
            .map_or(f64::NEG_INFINITY, |t| t["logprob"].as_f64().unwrap())
    };
    let places = |c: &Completion| c.probs.as_array().unwrap().clone();
    for (a, b) in places(a).iter().zip(&places(b)) {
        let likely = &a["top_logprobs"].as_array().unwrap()[..5];
        let far = |t: &Value| (of(a, &t["id"]).exp() - of(b, &t["id"]).exp()).abs() > SAME;
        if likely.iter().any(far) {
            return false;
        }
        if a["id"] != b["id"] {
            return of(a, &a["id"]) - of(a, &b["id"]) < TIE;
        }
    }
    true
}
