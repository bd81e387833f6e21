//! Continues a prompt, with layers repeated if a spec is given.
//!
//! ```console
//! cargo run --release -p rys --example generate -- MODEL PROMPT [SPEC] [TEMPERATURE]
//! cargo run --release -p rys --example generate -- model.gguf "The capital of France is" 10,14
//! ```

use std::error::Error;
use std::io::{Write, stdout};
use std::process::ExitCode;

use rys::{Batch, ContextParams, Model, ModelParams, Sampler, SamplerBuilder, Spec, log};

const N_PREDICT: usize = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, prompt, rest @ ..] = args.as_slice() else {
        return Err("usage: generate MODEL PROMPT [SPEC] [TEMPERATURE]".into());
    };
    let spec: Option<Spec> = rest.first().map(|s| s.parse()).transpose()?;
    let temperature: Option<f32> = rest.get(1).map(|t| t.parse()).transpose()?;

    log::set_sink(|level, text| {
        if level >= log::Level::Warn {
            eprint!("{text}");
        }
    });
    let model = Model::load(model, ModelParams::new())?;
    let tokens = model.tokenize(prompt, true, true)?;
    let mut params = ContextParams::new().n_ctx((tokens.len() + N_PREDICT) as u32);
    if let Some(spec) = spec {
        params = params.repeat_layers(spec);
    }
    let mut ctx = model.context(params)?;
    if let Some(plan) = ctx.plan() {
        eprintln!(
            "{} layers run as {}: {plan}",
            plan.n_layer(),
            plan.n_layer_eff()
        );
    }

    let mut sampler = match temperature {
        Some(t) => SamplerBuilder::new(&model)?
            .top_k(40)?
            .top_p(0.95, 1)?
            .temp(t)?
            .dist(1)?,
        None => Sampler::greedy(&model)?,
    };
    print!("{prompt}");
    let n_batch = ctx.n_batch() as usize;
    let mut pos = 0;
    for part in tokens.chunks(n_batch) {
        ctx.decode(&Batch::prompt(part, pos, 0))?;
        pos += part.len() as i32;
    }
    for _ in 0..N_PREDICT {
        let token = sampler.sample(&mut ctx, -1)?;
        if model.is_eog(token) {
            break;
        }
        // a token may end in the middle of a character
        stdout().write_all(&model.token_bytes(token, false)?)?;
        stdout().flush()?;
        ctx.decode(&Batch::prompt(&[token], pos, 0))?;
        pos += 1;
    }
    println!();
    Ok(())
}
