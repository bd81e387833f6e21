//! Chats of several turns: checkpoints and the prompt cache save as many tokens with a plan as without,
//! and the answers are those of the expanded file.

use std::path::Path;

use rys::{Model, ModelParams};
use rys_tests::expand::expand;
use rys_tests::synth::Synth;
use rys_tests::{real, scratch, server};
use serde_json::{Value, json};
use xtask::server::Server;

use crate::pair::{spec, tokens};

/// Tokens of a prompt that were computed, and those that were not.
type Reuse = (u64, u64);

fn start(model: &Path, args: &[&str]) -> Server {
    let base = "-np 1 -t 1 -tb 1 -fit off --no-warmup -m";
    let base: Vec<&str> = base.split(' ').chain(model.to_str()).collect();
    Server::start(&server::program(), &[&base, args].concat()).unwrap()
}

#[track_caller]
fn post(server: &Server, path: &str, body: &Value) -> Value {
    let (status, answer) = server.post(path, body).unwrap();
    assert_eq!(status, 200, "{answer}");
    answer
}

fn reuse(answer: &Value) -> Reuse {
    let timing = |name: &str| answer["timings"][name].as_u64().unwrap();
    (timing("prompt_n"), timing("cache_n"))
}

/// A chat that goes on, is left for another one, is taken up again, and whose second question is asked
/// in other words.
fn chat(model: &Path, args: &[&str]) -> (Vec<Vec<i32>>, Vec<Reuse>) {
    let base = ["-c", "2048", "-b", "64", "-ub", "64", "-cms", "32"];
    let server = start(model, &[&base, args].concat());
    let mut answers = Vec::new();
    let mut reuses = Vec::new();
    let mut ask = |prompt: &[i32]| -> Vec<i32> {
        let answer = post(
            &server,
            "/completion",
            &json!({"prompt": prompt, "n_predict": 40, "temperature": 0, "ignore_eos": true,
                    "return_tokens": true, "cache_prompt": true}),
        );
        reuses.push(reuse(&answer));
        let tokens: Vec<i32> = serde_json::from_value(answer["tokens"].clone()).unwrap();
        answers.push(tokens.clone());
        [prompt, &tokens].concat()
    };
    let first = ask(&tokens(300, 1));
    let second = ask(&[&first[..], &tokens(30, 2)].concat());
    ask(&tokens(200, 3));
    ask(&[&second[..], &tokens(30, 4)].concat());
    ask(&[&first[..], &tokens(30, 5)].concat());
    ask(&tokens(300, 1)[..250]);
    (answers, reuses)
}

/// A plan, the expanded file, and no plan.
fn check(synth: &Synth, plan: &str, args: &[&str]) {
    let dir = scratch();
    let path = synth.write(dir.path());
    let twin = dir.path().join("twin.gguf");
    let model = Model::load(&path, ModelParams::new()).unwrap();
    expand(&path, model.plan(&spec(plan)).unwrap().as_slice(), &twin);

    let repeats = ["--repeat-layers", plan];
    let (answers, reuses) = chat(&path, &[args, &repeats].concat());
    let (twin_answers, twin_reuses) = chat(&twin, args);
    let (base_answers, base_reuses) = chat(&path, args);
    assert_eq!(answers, twin_answers);
    assert_eq!(reuses, twin_reuses);
    assert_eq!(reuses, base_reuses);
    assert!(answers.iter().zip(&base_answers).all(|(a, b)| a != b));

    // nothing is known of the first and the third prompt, most of every other one; how much of the fifth,
    // which goes back into the cached chat, depends on the memory
    assert_eq!([reuses[0], reuses[2]], [(300, 0), (200, 0)]);
    for i in [1, 3, 5] {
        assert!(reuses[i].1 > 4 * reuses[i].0, "{reuses:?}");
    }
}

#[test]
fn qwen35() {
    check(&Synth::new("qwen35"), "2-7", &[]);
    check(&Synth::new("qwen35"), "2-3", &["-kvu", "-ctk", "q8_0"]);
}

#[test]
fn qwen3next() {
    check(&Synth::new("qwen3next"), "2-7", &[]);
}

#[test]
fn gemma4() {
    check(&Synth::new("gemma4"), "2-5", &[]);
    check(&Synth::new("gemma4"), "2-5", &["--swa-full"]);
    check(&Synth::gemma4_e2b(3), "1-5", &[]);
}

/// A real chat, by its template.
#[test]
fn real_gemma3() {
    let dir = scratch();
    let path = real::gemma3();
    let twin = dir.path().join("twin.gguf");
    let model = Model::load(&path, ModelParams::new()).unwrap();
    expand(&path, model.plan(&spec("8,11")).unwrap().as_slice(), &twin);
    drop(model);

    let chat = |model: &Path, args: &[&str]| -> (Vec<String>, Vec<Reuse>) {
        let server = start(model, &[&["-c", "1024", "-cms", "8"], args].concat());
        let mut messages = Vec::new();
        let mut texts = Vec::new();
        let mut reuses = Vec::new();
        for question in [
            "Name three colors.",
            "Which of them is the color of the sky?",
        ] {
            messages.push(json!({"role": "user", "content": question}));
            let answer = post(
                &server,
                "/v1/chat/completions",
                &json!({"messages": messages, "max_tokens": 16, "temperature": 0}),
            );
            let message = answer["choices"][0]["message"].clone();
            texts.push(message["content"].as_str().unwrap().to_owned());
            messages.push(message);
            reuses.push(reuse(&answer));
        }
        (texts, reuses)
    };
    let (texts, reuses) = chat(&path, &["-rl", "8-11"]);
    let (twin_texts, twin_reuses) = chat(&twin, &[]);
    let (_, base_reuses) = chat(&path, &[]);
    assert_eq!(texts, twin_texts);
    assert_eq!(reuses, twin_reuses);
    assert_eq!(reuses[0], base_reuses[0]);
    assert!(reuses[1].1 > 0);
}
