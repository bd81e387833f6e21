//! Writes a model with its layers as a spec runs them, for programs that cannot repeat layers:
//! `cargo run -p rys-tests --example expand -- MODEL SPEC OUT`.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use rys_plan::Spec;
use rys_tests::expand::expand;
use rys_tests::gguf::File;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [model, spec, out] = &args[..] else {
        bail!("usage: expand MODEL SPEC OUT");
    };
    let model = Path::new(model);
    let file = File::read(model);
    let arch = file
        .str("general.architecture")
        .with_context(|| format!("{} names no architecture", model.display()))?;
    let n_all = file
        .u32(&format!("{arch}.block_count"))
        .with_context(|| format!("{} has no {arch}.block_count", model.display()))?;
    let n_nextn = file
        .u32(&format!("{arch}.nextn_predict_layers"))
        .unwrap_or(0);
    let spec: Spec = spec.parse()?;
    let plan = spec
        .plan(n_all.saturating_sub(n_nextn), n_nextn)
        .map_err(|e| anyhow!("{e:#}"))?;
    expand(model, plan.as_slice(), Path::new(out));
    Ok(())
}
