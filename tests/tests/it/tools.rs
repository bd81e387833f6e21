//! Upstream's own tools with the option, and those that refuse it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rys::{Batch, ContextParams, Model, ModelParams, Spec};
use rys_tests::expand::expand;
use rys_tests::synth::Synth;
use rys_tests::{real, scratch};

/// Names the folder of the tools.
const VAR: &str = "RYS_TOOLS";
const ENV: &str = "LLAMA_ARG_REPEAT_LAYERS";

fn tool(name: &str, args: &[&str], spec: Option<&str>) -> Output {
    let dir = env::var_os(VAR).unwrap_or_else(|| {
        panic!(
            "{VAR} is not set: it names the folder with the patched llama.cpp's tools; run `cargo \
             xtask test`, which builds and sets it"
        )
    });
    let path = Path::new(&dir).join(name);
    let mut cmd = Command::new(&path);
    cmd.args(args).stdin(Stdio::null()).env_remove(ENV);
    if let Some(spec) = spec {
        cmd.env(ENV, spec);
    }
    cmd.output()
        .unwrap_or_else(|e| panic!("{}: {e}; run `cargo xtask test`", path.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a run that succeeds.
fn stdout(name: &str, args: &[&str], spec: Option<&str>) -> String {
    let out = tool(name, args, spec);
    assert!(
        out.status.success(),
        "{name} {args:?}: {}",
        text(&out.stderr)
    );
    text(&out.stdout)
}

/// Standard error of a run that ends with code 1.
fn stderr(name: &str, args: &[&str], spec: Option<&str>) -> String {
    let out = tool(name, args, spec);
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{name} {args:?}: {stderr}");
    stderr
}

fn as_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn help() {
    for (name, line) in [
        (
            "llama-completion",
            "run blocks of layers twice with the same weights",
        ),
        (
            "llama-perplexity",
            "run blocks of layers twice with the same weights",
        ),
        (
            "llama-cvector-generator",
            "not supported by this tool, refused",
        ),
    ] {
        let help = stdout(name, &["--help"], None);
        let option = help.split("--repeat-layers START-END").nth(1).unwrap();
        let option = option.split("\n-").next().unwrap();
        assert!(option.contains(line), "{name}: {option}");
        assert!(
            option.contains("(env: LLAMA_ARG_REPEAT_LAYERS)"),
            "{option}"
        );
        assert_eq!(help.matches("--repeat-layers").count(), 1, "{name}");
    }
    let help = stdout("llama-bench", &["--help"], None);
    assert!(help.contains("-rl, --repeat-layers <none|spec>"), "{help}");
}

#[test]
fn bench_dimension() {
    let dir = scratch();
    let model = Synth::new("llama").write(dir.path());
    let args = |more: &[&'static str]| {
        let mut args = vec![
            "-m",
            as_str(&model),
            "-p",
            "8",
            "-n",
            "2",
            "-r",
            "1",
            "-t",
            "1",
        ];
        args.extend(more);
        stdout("llama-bench", &args, None)
    };

    let csv = args(&["-o", "csv", "-rl", "none,2-4,1-3+4-5"]);
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows[0].ends_with(",repeat_layers"), "{csv}");
    let specs: Vec<_> = rows[1..]
        .iter()
        .map(|r| r.rsplit(',').next().unwrap())
        .collect();
    let [none, one, two] = ["\"none\"", "\"2-4\"", "\"1-3+4-5\""];
    assert_eq!(specs, [none, none, one, one, two, two]);

    // as upstream prints it
    let plain = args(&["-o", "csv"]);
    let header = plain.lines().next().unwrap();
    assert_eq!(format!("{header},repeat_layers"), rows[0]);
    assert_eq!(plain.lines().count(), 3);
    assert!(!args(&[]).contains("| rl"));
    let table = args(&["-rl", "2-4"]);
    assert!(
        table.contains("| rl ") && table.contains("| 2-4 "),
        "{table}"
    );
}

#[test]
fn bench_runs_the_plan_and_says_what_is_wrong_with_one() {
    let dir = scratch();
    let model = Synth::new("llama").write(dir.path());
    let base = [
        "-m",
        as_str(&model),
        "-p",
        "8",
        "-n",
        "0",
        "-r",
        "1",
        "-t",
        "1",
        "-v",
    ];
    let with = |rl: &'static str| [&base[..], &["-rl", rl]].concat();

    let out = tool("llama-bench", &with("1-3+4-5"), None);
    let log = text(&out.stderr);
    assert!(out.status.success(), "{log}");
    let line = "repeat layers 1,3;4,5: n_layer = 6, n_layer_eff = 9";
    assert!(log.contains(line), "{log}");
    let log = text(&tool("llama-bench", &base, None).stderr);
    assert!(!log.contains("n_layer_eff"), "{log}");

    let log = stderr("llama-bench", &with("none,2..4"), None);
    assert!(log.contains("position 2: `..` is not supported"), "{log}");
    let log = stderr("llama-bench", &with("2-9"), None);
    assert!(
        log.contains("block 2,9 ends after the model's 6 layers"),
        "{log}"
    );
}

#[test]
fn tools_that_refuse() {
    let reason = "this tool cannot repeat layers; leave --repeat-layers and \
                  LLAMA_ARG_REPEAT_LAYERS out";
    for name in [
        "llama-cvector-generator",
        "llama-diffusion-cli",
        "llama-export-lora",
        "llama-finetune",
        "llama-tokenize",
    ] {
        for args in [&["--repeat-layers", "2-4"][..], &["-rl", "2-4"]] {
            let log = stderr(name, args, None);
            assert!(log.contains(reason), "{name}: {log}");
        }
        let log = stderr(name, &[], Some("2-4"));
        assert!(log.contains(reason) && log.contains(ENV), "{name}: {log}");
    }
}

/// The target runs the plan, the draft its plain layers.
#[test]
fn speculative() {
    let path = real::smollm2();
    let args = [
        "-m",
        as_str(&path),
        "-md",
        as_str(&path),
        "-rl",
        "10,14",
        "-p",
        "The capital of France is",
        "-n",
        "4",
        "-t",
        "1",
        "-c",
        "256",
        // each context is made once
        "-fit",
        "off",
        "-v",
    ];
    let out = tool("llama-speculative", &args, None);
    let log = text(&out.stderr);
    assert!(out.status.success(), "{log}");
    let layers: Vec<&str> = log
        .lines()
        .filter(|l| l.contains("llama_kv_cache: size = "))
        .filter_map(|l| l.split(" layers,").next()?.split_whitespace().last())
        .collect();
    assert_eq!(layers, ["34", "30"], "{log}");
}

#[test]
fn completion() {
    let model = Model::load(real::smollm2(), ModelParams::new()).unwrap();
    let prompt = "The capital of France is";
    const N: usize = 24;
    let path = real::smollm2();
    let args = [
        "-m",
        as_str(&path),
        "-p",
        prompt,
        "-n",
        "24",
        "--temp",
        "0",
        "-t",
        "1",
        "-no-cnv",
        "--no-warmup",
        "--no-display-prompt",
        "-c",
        "256",
    ];
    let library = |spec: Option<Spec>| {
        let mut params = ContextParams::new()
            .n_ctx(256)
            .n_threads(1)
            .n_threads_batch(1);
        if let Some(spec) = spec {
            params = params.repeat_layers(spec);
        }
        let mut ctx = model.context(params).unwrap();
        let tokens = model.tokenize(prompt, true, true).unwrap();
        ctx.decode(&Batch::prompt(&tokens, 0, 0)).unwrap();
        let mut reply = Vec::new();
        loop {
            let token = ctx.greedy(-1).unwrap();
            if model.is_eog(token) || reply.len() == N {
                break;
            }
            let pos = (tokens.len() + reply.len()) as i32;
            ctx.decode(&Batch::prompt(&[token], pos, 0)).unwrap();
            reply.push(token);
        }
        model.detokenize(&reply, true).unwrap()
    };
    let shown = |args: &[&str], spec| {
        let out = stdout("llama-completion", args, spec);
        out.replace("[end of text]", "").trim().to_owned()
    };

    let base = library(None);
    let plan = library(Some("10,14".parse().unwrap()));
    assert_ne!(base, plan);
    assert_eq!(shown(&args, None), base.trim());
    let with = [&args[..], &["--repeat-layers", "10,14"]].concat();
    assert_eq!(shown(&with, None), plan.trim());
    assert_eq!(shown(&args, Some("10-14")), plan.trim());

    let log = stderr("llama-completion", &args, Some("10-14x"));
    assert!(
        log.contains("position 6: `x` follows a complete block"),
        "{log}"
    );
    let log = stderr("llama-completion", &args, Some("10-44"));
    assert!(
        log.contains("block 10,44 ends after the model's 30 layers"),
        "{log}"
    );
}

#[test]
fn perplexity() {
    let dir = scratch();
    let path = real::smollm2();
    let model = Model::load(&path, ModelParams::new()).unwrap();
    let spec: Spec = "12,13".parse().unwrap();
    let twin: PathBuf = dir.path().join("twin.gguf");
    expand(&path, model.plan(&spec).unwrap().as_slice(), &twin);
    let corpus = dir.path().join("corpus.txt");
    let tokens = crate::off::text_tokens(&model, 150);
    fs::write(&corpus, model.detokenize(&tokens, true).unwrap()).unwrap();

    let estimate = |model: &Path, spec: Option<&str>| {
        let args = [
            "-m",
            as_str(model),
            "-f",
            as_str(&corpus),
            "-c",
            "64",
            "-t",
            "1",
            "--no-warmup",
        ];
        let out = tool("llama-perplexity", &args, spec);
        let log = text(&out.stdout) + &text(&out.stderr);
        assert!(out.status.success(), "{log}");
        let estimate = log.lines().find_map(|l| l.split_once("Final estimate: "));
        estimate.unwrap_or_else(|| panic!("{log}")).1.to_owned()
    };
    let with_plan = estimate(&path, Some("12-13"));
    assert_eq!(with_plan, estimate(&twin, None));
    assert_ne!(with_plan, estimate(&path, None));
}
