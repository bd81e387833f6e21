//! `cargo xtask demo`: the same question to a model and to the model with repeated layers.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::progress::Step;
use crate::server::{self, Server};
use crate::{models, program, setup, vendor};

/// Middle layers of SmolLM2's 30.
const SPEC: &str = "10,14";
const QUESTION: &str = "What is the capital of France, and what is it known for?";

/// Options of the demo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Question for the model
    #[arg(long, default_value = QUESTION)]
    question: String,
    /// Blocks of layers to repeat
    #[arg(long, value_name = "SPEC", default_value = SPEC)]
    repeat_layers: String,
    /// Tokens of each answer, at most
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
}

/// Runs the demo.
pub fn run(args: &Args) -> Result<()> {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    ctrlc::set_handler(|| {
        INTERRUPTED.store(true, Ordering::SeqCst);
        server::stop_all();
        exit(130);
    })
    .context("cannot handle Ctrl-C")?;
    let result = show(args);
    while INTERRUPTED.load(Ordering::SeqCst) {
        // The handler ends the process; the stopped servers are no error to tell.
        thread::park();
    }
    result
}

fn show(args: &Args) -> Result<()> {
    let spec = args.repeat_layers.parse::<rys_plan::Spec>();
    spec.map_err(|e| anyhow!("--repeat-layers: {e:#}"))?;
    setup::system()?;
    vendor::ensure()?;
    let model = models::ensure("smollm2")?;
    let program = program::build(true)?;

    let step = Step::spinner("loading the model in two servers");
    let (base, repeated) = thread::scope(|scope| {
        let base = scope.spawn(|| start(&program, &model, None));
        let repeated = start(&program, &model, Some(&args.repeat_layers));
        (
            base.join()
                .unwrap_or_else(|_| Err(anyhow!("a thread ended unexpectedly"))),
            repeated,
        )
    });
    let (base, repeated) = (base?, repeated?);
    drop(step);

    println!("model      {}", model.display());
    println!("question   {}", args.question);
    let base = ask(&base, "the base model", args)?;
    let repeated = ask(&repeated, "the repeated model", args)?;
    print(&base, &repeated)?;
    println!();
    println!("Repeats may help a model or harm it: measure. To serve your own model:");
    println!(
        "  {} -m YOUR-MODEL.gguf --repeat-layers START-END",
        shown(&program)
    );
    Ok(())
}

fn start(program: &Path, model: &Path, spec: Option<&str>) -> Result<Server> {
    let mut args: Vec<&OsStr> = vec!["-m".as_ref(), model.as_ref()];
    // More threads than one gain little on so small a model, and lose much on a busy machine.
    args.extend(["-c", "2048", "-np", "1", "-t", "1"].map(OsStr::new));
    if let Some(spec) = spec {
        args.extend(["--repeat-layers", spec].map(OsStr::new));
    }
    Server::start(program, &args)
}

/// One server's answer and what it says about itself.
struct Answer {
    text: String,
    tokens_per_second: f64,
    weight_bytes: u64,
    /// `repeat_layers` of `/props`; null without.
    repeats: Value,
}

fn ask(server: &Server, whom: &str, args: &Args) -> Result<Answer> {
    let step = Step::spinner(&format!("asking {whom}"));
    let (status, answer) = server.post(
        "/v1/chat/completions",
        &json!({
            "messages": [{"role": "user", "content": args.question}],
            "max_tokens": args.tokens,
            "temperature": 0,
        }),
    )?;
    ensure!(
        status == 200,
        "{whom} answers with status {status}: {answer}"
    );
    let (_, props) = server.get("/props")?;
    let (_, models) = server.get("/v1/models")?;
    drop(step);
    let field = |name: &str, value: &Value| {
        value
            .as_f64()
            .with_context(|| format!("{whom} does not report {name}"))
    };
    Ok(Answer {
        text: answer["choices"][0]["message"]["content"]
            .as_str()
            .with_context(|| format!("{whom} gives no text: {answer}"))?
            .trim()
            .to_owned(),
        tokens_per_second: field("its speed", &answer["timings"]["predicted_per_second"])?,
        weight_bytes: field("its size", &models["data"][0]["meta"]["size"])? as u64,
        repeats: props["repeat_layers"].clone(),
    })
}

fn print(base: &Answer, repeated: &Answer) -> Result<()> {
    let plan = &repeated.repeats;
    let number = |name: &str| {
        plan[name]
            .as_u64()
            .with_context(|| format!("/props has no repeat_layers.{name}"))
    };
    let (n_layer, n_layer_eff) = (number("n_layer")?, number("n_layer_eff")?);
    let (kv, kv_extra) = (number("kv_bytes")?, number("kv_bytes_extra")?);
    let text = |name: &str| plan[name].as_str().unwrap_or_default();

    println!("\nbase: layers 0..={}", n_layer - 1);
    println!("{}", indented(&base.text));
    println!(
        "\n--repeat-layers {}: layers {}",
        text("spec"),
        text("order")
    );
    println!("{}\n", indented(&repeated.text));

    let row = |name: &str, base: String, repeated: String, note: &str| {
        let line = format!("{name:<10} {base:>12} {repeated:>12}   {note}");
        println!("{}", line.trim_end());
    };
    row("", "base".into(), "repeated".into(), "");
    row(
        "layers run",
        n_layer.to_string(),
        n_layer_eff.to_string(),
        &format!("n_layer {n_layer} -> n_layer_eff {n_layer_eff}"),
    );
    row(
        "tokens/s",
        format!("{:.1}", base.tokens_per_second),
        format!("{:.1}", repeated.tokens_per_second),
        "on one thread",
    );
    row(
        "KV cache",
        mib(kv - kv_extra),
        mib(kv),
        &format!("{kv} bytes, {kv_extra} more than the base"),
    );
    row(
        "weights",
        mib(base.weight_bytes),
        mib(repeated.weight_bytes),
        &format!("{} bytes, a repeat copies none", repeated.weight_bytes),
    );
    Ok(())
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|l| format!("  {l}")).collect();
    lines.join("\n")
}

fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

/// A path as short as it can be typed from here.
fn shown(path: &Path) -> String {
    let here = env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}
