//! A code hidden in a text is found with a repeated middle block wherever the base finds it.

use std::path::PathBuf;

use rys_tests::real;
use rys_tests::server::{Server, complete, start};
use serde_json::json;

const FILLER: [&str; 8] = [
    "The grass is green and the sky is blue.",
    "The sun rises in the east every morning.",
    "A gentle wind moves the leaves of the old trees.",
    "People walk along the river in the evening.",
    "The market opens early and closes late.",
    "Birds sing in the garden behind the house.",
    "The train to the coast leaves every hour.",
    "Bread is baked fresh in the little shop.",
];
const DEPTHS: [f64; 3] = [0.1, 0.5, 0.9];
const CODES: [&str; 3] = ["7341", "2958", "8062"];

/// `n` sentences, with the code in one more at this part of the text.
fn haystack(n: usize, depth: f64, code: &str) -> String {
    let mut sentences: Vec<String> = (0..n).map(|i| FILLER[i % 8].into()).collect();
    let at = (n as f64 * depth).round() as usize;
    sentences.insert(at, format!("The secret code is {code}."));
    sentences.join(" ")
}

fn chat(server: &Server, text: &str) -> String {
    let question = "What is the secret code? Answer with the number only.";
    let body = json!({
        "messages": [{"role": "user", "content": format!("{text}\n\n{question}")}],
        "temperature": 0,
        "max_tokens": 12,
    });
    let (status, answer) = server.post("/v1/chat/completions", &body).unwrap();
    assert_eq!(status, 200, "{answer}");
    let text = &answer["choices"][0]["message"]["content"];
    text.as_str().unwrap().into()
}

fn completion(server: &Server, text: &str) -> String {
    let end = "Question: What is the secret code?\nAnswer: The secret code is";
    complete(server, &format!("{text}\n\n{end}"), 8, &json!({})).text
}

/// Every length at every depth, with the base and with each plan.
fn check(model: PathBuf, specs: &[&str], lengths: &[usize], ask: fn(&Server, &str) -> String) {
    for spec in [None].into_iter().chain(specs.iter().copied().map(Some)) {
        let server = start(&model, spec, &["-c", "1024", "-np", "1"]);
        for (i, &n) in lengths.iter().enumerate() {
            for (j, depth) in DEPTHS.into_iter().enumerate() {
                let code = CODES[(i + j) % 3];
                let answer = ask(&server, &haystack(n, depth, code));
                assert!(
                    answer.contains(code),
                    "{spec:?}: {n} sentences, depth {depth}, code {code}: {answer:?}"
                );
            }
        }
    }
}

#[test]
fn smollm2() {
    check(real::smollm2(), &["10,14"], &[10, 20, 40], chat);
}

/// Layer 11 is global; layer 6 has a sliding window. Not every block holds: with layer 5, the other
/// global one in the middle, a code at depth 0.1 of 40 sentences was lost.
#[test]
fn gemma3() {
    check(real::gemma3(), &["11,12", "6,7"], &[10, 20, 40], completion);
}
