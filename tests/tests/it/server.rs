//! The server over HTTP, with a plan.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use rys::{Batch, ContextParams, Model, ModelParams, Spec};
use rys_tests::{real, scratch, server};
use serde_json::{Value, json};
use xtask::server::Server;

fn start(args: &[&str]) -> Server {
    Server::start(&server::program(), args).unwrap()
}

/// SmolLM2 with a context of 2048 tokens.
fn smollm2(args: &[&str]) -> Server {
    let model = real::smollm2();
    let model = model.to_str().unwrap();
    start(&[&["-m", model, "-c", "2048", "-t", "1"], args].concat())
}

#[track_caller]
fn get(server: &Server, path: &str) -> Value {
    let (status, body) = server.get(path).unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    body
}

#[track_caller]
fn post(server: &Server, path: &str, body: &Value) -> Value {
    let (status, body) = server.post(path, body).unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn model_meta(server: &Server) -> Value {
    get(server, "/v1/models")["data"][0]["meta"].clone()
}

/// What the server reports is what `rys-plan` expands and what the library's context has.
#[test]
fn reports_its_plan() {
    #[track_caller]
    fn check(given: &str, warns: bool) {
        let server = smollm2(&["--repeat-layers", given]);
        let spec: Spec = given.parse().unwrap();
        let model = Model::load(real::smollm2(), ModelParams::new().no_alloc(true)).unwrap();
        let plan = model.plan(&spec).unwrap();
        let params = ContextParams::new()
            .n_ctx(2048)
            .n_seq_max(4)
            .kv_unified(true);
        let ctx = model.context(params.repeat_layers(spec.clone())).unwrap();
        let cost = ctx.cost().unwrap();

        let repeats = get(&server, "/props")["repeat_layers"].clone();
        assert_eq!(repeats["spec"], spec.to_string());
        assert_eq!(repeats["n_layer"], 30);
        assert_eq!(repeats["n_layer_eff"], plan.n_layer_eff());
        assert_eq!(repeats["order"], plan.to_string());
        assert_eq!(repeats["plan"], json!(plan.as_slice()));
        assert_eq!(repeats["kv_bytes"], cost.plan.kv_bytes);
        assert_eq!(repeats["kv_bytes_extra"], cost.extra_kv_bytes());
        let percent = 100.0 * f64::from(plan.n_extra()) / 30.0;
        assert!((repeats["kv_extra_percent"].as_f64().unwrap() - percent).abs() < 1e-9);
        assert_eq!(
            (&repeats["rs_bytes"], &repeats["rs_bytes_extra"]),
            (&json!(0), &json!(0))
        );
        assert_eq!(repeats["warning"].is_string(), warns);
        assert_eq!(warns, plan.advice().is_some());
        assert_eq!(model_meta(&server)["repeat_layers"], repeats);

        let log = server.log();
        for part in [
            format!(
                "repeat layers {spec}: n_layer = 30, n_layer_eff = {}",
                plan.n_layer_eff()
            ),
            format!("repeat layers {spec}: order = {plan}"),
            format!(
                "repeat layers {spec}: extra KV cache = {:.2} MiB (+{percent:.1} %)",
                cost.extra_kv_bytes() as f64 / f64::from(1 << 20)
            ),
        ] {
            assert_eq!(log.matches(&part).count(), 1, "{part}\nin\n{log}");
        }
        let warnings = log.matches("repeating boundary layers").count();
        assert_eq!(warnings, usize::from(warns), "{log}");
    }
    check("10,14", false);
    check("20-22+0-2", true);
}

#[test]
fn without_a_plan_nothing_is_reported() {
    let server = smollm2(&[]);
    let props = get(&server, "/props");
    assert!(props.is_object() && props.get("repeat_layers").is_none());
    assert!(model_meta(&server).get("repeat_layers").is_none());
    assert!(!server.log().contains("repeat layers"), "{}", server.log());
}

/// The last of several wins, as for every option of llama.cpp.
#[test]
fn the_last_spec_wins() {
    let server = smollm2(&["-rl", "60,70", "--repeat-layers", "4-6", "-rl", "10-14"]);
    assert_eq!(get(&server, "/props")["repeat_layers"]["spec"], "10,14");
    assert!(server.log().contains("specified multiple times"));
}

/// The server's greedy text is that of the library with the same plan, and not the base's.
#[test]
fn completion() {
    const PROMPT: &str = "The three primary colors are";
    const N: usize = 16;
    let library = |spec: Option<&str>| {
        let model = Model::load(real::smollm2(), ModelParams::new()).unwrap();
        let mut params = ContextParams::new()
            .n_ctx(512)
            .n_threads(1)
            .n_threads_batch(1);
        if let Some(spec) = spec {
            params = params.repeat_layers(spec.parse().unwrap());
        }
        let mut ctx = model.context(params).unwrap();
        let mut tokens = model.tokenize(PROMPT, true, false).unwrap();
        let n_prompt = tokens.len();
        let mut batch = Batch::prompt(&tokens, 0, 0);
        while tokens.len() < n_prompt + N {
            ctx.decode(&batch).unwrap();
            let token = ctx.greedy(-1).unwrap();
            batch = Batch::prompt(&[token], tokens.len() as i32, 0);
            tokens.push(token);
        }
        tokens.split_off(n_prompt)
    };
    let server = smollm2(&["--repeat-layers", "10,14"]);
    let answer = post(
        &server,
        "/completion",
        &json!({"prompt": PROMPT, "n_predict": N, "temperature": 0, "return_tokens": true,
                "ignore_eos": true}),
    );
    let repeated = library(Some("10,14"));
    assert_eq!(answer["tokens"], json!(repeated));
    assert_ne!(repeated, library(None));
}

/// A chat answer comes whole and in events, with the same text.
#[test]
fn chat_and_streaming() {
    let server = smollm2(&["--repeat-layers", "10,14"]);
    let ask = |stream: bool| {
        json!({
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 12, "temperature": 0, "stream": stream, "cache_prompt": false,
        })
    };
    let whole = post(&server, "/v1/chat/completions", &ask(false));
    let whole = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(whole.contains("Paris"), "{whole}");

    let (status, events) = server
        .post_text("/v1/chat/completions", &ask(true))
        .unwrap();
    assert_eq!(status, 200, "{events}");
    let data: Vec<&str> = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    assert_eq!(data.last(), Some(&"[DONE]"));
    let parts: Vec<String> = data[..data.len() - 1]
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap())
        .filter_map(|event| Some(event["choices"][0]["delta"]["content"].as_str()?.to_owned()))
        .collect();
    assert!(parts.len() > 1, "{events}");
    assert_eq!(parts.concat(), whole);
}

/// Four requests at once, each in a slot of its own, each answered.
#[test]
fn four_slots() {
    let server = smollm2(&["--repeat-layers", "10,14", "-np", "4"]);
    assert_eq!(get(&server, "/props")["total_slots"], 4);
    let ask = |slot: u64, city: &str| {
        json!({
            "prompt": format!("Q: Name the country of {city}. A:"),
            "n_predict": 24, "temperature": 0, "id_slot": slot, "ignore_eos": true,
        })
    };
    let cities = ["Paris", "Rome", "Madrid", "Berlin"];
    let answers: Vec<Value> = thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(cities)
            .map(|(slot, city)| {
                let (server, body) = (&server, ask(slot, city));
                scope.spawn(move || post(server, "/completion", &body))
            })
            .collect();
        running.into_iter().map(|r| r.join().unwrap()).collect()
    });
    let slots: BTreeSet<u64> = answers
        .iter()
        .filter_map(|a| a["id_slot"].as_u64())
        .collect();
    assert_eq!(slots, BTreeSet::from([0, 1, 2, 3]));
    for (answer, country) in answers.iter().zip(["France", "Italy", "Spain", "Germany"]) {
        assert_eq!(answer["tokens_predicted"], 24, "{answer}");
        let text = answer["content"].as_str().unwrap();
        assert!(text.contains(country), "{text}");
    }
}

/// A preset gives each model its own repeats, and the children are this program.
#[test]
fn router_with_a_preset() {
    let dir = scratch();
    let model = real::smollm2();
    let preset = dir.path().join("preset.ini");
    let common = format!("model = {}\nctx-size = 512\nthreads = 1\n", model.display());
    let text = format!(
        "[base]\n{common}\n[one]\n{common}repeat-layers = 10-14\n\n\
         [two]\n{common}repeat-layers = 10-12+14-16 ; two blocks\n\n\
         [bad]\n{common}repeat-layers = 20-40\n"
    );
    fs::write(&preset, text).unwrap();
    let server = start(&["--server", "--models-preset", preset.to_str().unwrap()]);

    for (name, spec) in [
        ("base", None),
        ("one", Some("10,14")),
        ("two", Some("10,12;14,16")),
    ] {
        let answer = post(
            &server,
            "/v1/chat/completions",
            &json!({"model": name, "messages": [{"role": "user", "content": "Say hello."}],
                    "max_tokens": 4, "temperature": 0}),
        );
        assert_eq!(answer["usage"]["completion_tokens"], 4, "{answer}");
        let props = get(&server, &format!("/props?model={name}"));
        assert_eq!(props["repeat_layers"]["spec"].as_str(), spec, "{name}");
    }
    let (status, answer) = server
        .post(
            "/v1/completions",
            &json!({"model": "bad", "prompt": "x", "max_tokens": 1}),
        )
        .unwrap();
    assert_eq!(status, 500, "{answer}");
    let log = server.log();
    assert!(log.contains("block `20,40` ends past"), "{log}");

    let program = server::program();
    let models = get(&server, "/v1/models");
    for model in models["data"].as_array().unwrap() {
        let bad = model["id"] == "bad";
        assert_eq!(
            model["status"]["args"][0].as_str(),
            program.to_str(),
            "{model}"
        );
        assert_eq!(model["status"]["exit_code"] == 2, bad, "{model}");
        let meta = &model["meta"]["repeat_layers"]["n_layer_eff"];
        let repeated = model["id"] == "one" || model["id"] == "two";
        assert_eq!(meta.as_u64(), repeated.then_some(34), "{model}");
    }
}

/// A saved slot comes back after a restart under the same plan, and is refused under another one,
/// which leaves a slot that works.
#[test]
fn slots_across_a_restart() {
    let dir = scratch();
    let start = |spec: Option<&str>| {
        let mut args = vec!["-np", "1", "--slot-save-path", dir.path().to_str().unwrap()];
        args.extend(spec.iter().flat_map(|spec| ["--repeat-layers", spec]));
        smollm2(&args)
    };
    let next = |server: &Server| {
        let body = json!({
            "prompt": "The quick brown fox jumps over the lazy", "n_predict": 1, "temperature": 0,
            "n_probs": 5, "id_slot": 0, "cache_prompt": true,
        });
        let answer = post(server, "/completion", &body);
        (
            answer["completion_probabilities"].clone(),
            answer["timings"]["cache_n"].as_u64().unwrap(),
        )
    };
    let file = json!({"filename": "slot.bin"});
    let restore = |server: &Server| server.post("/slots/0?action=restore", &file).unwrap();

    let server = start(Some("10,14"));
    // The second answer is of one evaluated token on a cached prompt, as after a restore.
    next(&server);
    let (wanted, cached) = next(&server);
    assert!(cached > 0);
    post(&server, "/slots/0?action=save", &file);
    drop(server);

    let server = start(Some("10,14"));
    let (status, answer) = restore(&server);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(next(&server), (wanted, cached));
    drop(server);

    for spec in [Some("11,15"), None] {
        let server = start(spec);
        let (status, answer) = restore(&server);
        assert!((400..600).contains(&status), "{spec:?}: {status} {answer}");
        let reason = answer["error"]["message"].as_str().unwrap();
        assert!(
            reason.contains("the state was saved with "),
            "{spec:?}: {reason}"
        );
        let (probabilities, cached) = next(&server);
        assert!(probabilities[0]["token"].is_string(), "{probabilities}");
        assert_eq!(cached, 0, "{spec:?}");
    }
}
