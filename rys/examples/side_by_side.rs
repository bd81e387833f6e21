//! Answers a question twice on one loaded model: with each layer once, and with layers repeated.
//!
//! ```console
//! cargo run --release -p rys --example side_by_side -- MODEL QUESTION SPEC
//! cargo run --release -p rys --example side_by_side -- model.gguf "What is the capital of France?" 10,14
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use rys::{Batch, Context, ContextParams, Model, ModelParams, Spec, log};

const N_CTX: u32 = 1024;
const N_PREDICT: usize = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // The alternate form marks the place in a spec.
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, question, spec] = args.as_slice() else {
        return Err("usage: side_by_side MODEL QUESTION SPEC".into());
    };
    let spec: Spec = spec.parse()?;

    log::set_sink(|level, text| {
        if level >= log::Level::Warn {
            eprint!("{text}");
        }
    });
    let model = Model::load(model, ModelParams::new())?;
    println!(
        "weights, shared by both: {:.1} MB",
        model.size_bytes() as f64 / 1e6
    );
    let params = ContextParams::new().n_ctx(N_CTX);
    let name = format!("layers {spec} twice");
    let mut base = model.context(params.clone())?;
    let mut repeated = model.context(params.repeat_layers(spec))?;
    answer("base", &model, question, &mut base)?;
    answer(&name, &model, question, &mut repeated)
}

fn answer(
    name: &str,
    model: &Model,
    question: &str,
    ctx: &mut Context,
) -> Result<(), Box<dyn Error>> {
    let prompt = match model.chat_template() {
        Some(_) => model.chat_prompt(None, &[("user", question)], true)?,
        None => question.to_owned(),
    };
    let tokens = model.tokenize(&prompt, true, true)?;
    ctx.decode(&Batch::prompt(&tokens, 0, 0))?;

    let mut reply = Vec::new();
    let start = Instant::now();
    while reply.len() < N_PREDICT {
        let token = ctx.greedy(-1)?;
        if model.is_eog(token) {
            break;
        }
        let pos = (tokens.len() + reply.len()) as i32;
        ctx.decode(&Batch::prompt(&[token], pos, 0))?;
        reply.push(token);
    }
    let speed = reply.len() as f64 / start.elapsed().as_secs_f64();

    println!("\n== {name}");
    println!("{}", model.detokenize(&reply, false)?.trim());
    println!(
        "-- {} layers run as {}, {speed:.1} tokens/s, KV cache {} bytes, recurrent state {} bytes",
        model.n_layer(),
        ctx.n_layer_eff(),
        ctx.kv_bytes(),
        ctx.rs_bytes(),
    );
    Ok(())
}
