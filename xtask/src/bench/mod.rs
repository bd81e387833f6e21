//! `cargo xtask bench`: this build against unpatched llama.cpp, and repeats against the same
//! layers written out in the file.

mod gates;
mod machine;
mod measure;
mod programs;
mod report;
mod stats;
mod table;
mod variant;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Context, Result, anyhow, ensure};
use rys_plan::{Spec, SpecError};

use crate::progress::Step;
use crate::source::{Pin, write_atomic};
use crate::{models, paths, setup, vendor};
use machine::Machine;
use measure::{Case, Load, Sizes};
use programs::Programs;
use report::{About, Figures, Report};
use variant::ALL;

/// Runs whose memory is measured, of each variant.
const MEMORY_ROUNDS: usize = 3;
/// Most tokens evaluated under callgrind, which is some fifty times slower.
const MAX_COUNTED: (u32, u32) = (32, 8);

/// Options of the measurements.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A model of the tests (smollm2, gemma3) or a GGUF file
    #[arg(long, value_name = "NAME|FILE", default_value = "smollm2")]
    model: String,
    /// Blocks of layers to repeat
    #[arg(long, value_name = "SPEC", default_value = "10,14")]
    repeat_layers: String,
    /// The model with those layers written out; made for the run if absent
    #[arg(long, value_name = "FILE")]
    expanded: Option<PathBuf>,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    prefill: u32,
    /// Tokens evaluated one by one after the prompt
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    decode: u32,
    /// Tokens that the context has room for, at least those evaluated [default: those evaluated]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    context: Option<u32>,
    /// Threads of timed runs [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: Option<u32>,
    /// Most timed rounds; fewer if every interval is narrow enough before
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Measure no times, for a machine that is busy
    #[arg(long)]
    no_times: bool,
    /// Count no instructions; their gates are then not measured
    #[arg(long)]
    no_callgrind: bool,
    /// Write the figures to a file as JSON too (`-`: to standard output instead of the tables)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures, prints and judges.
pub fn run(args: &Args) -> Result<()> {
    let spec: Spec = args
        .repeat_layers
        .parse()
        .map_err(|e: SpecError| anyhow!("{e:#}"))?;
    let machine = Machine::here();
    if !args.no_times && !machine.is_quiet() {
        eprintln!(
            "warning: the load average is {:.2}: times will be wrong until the machine is quiet",
            machine.load_average
        );
    }
    let cores = available_parallelism().map_or(1, usize::from);
    let sizes = sizes(args, cores)?;

    setup::system()?;
    if !args.no_callgrind {
        setup::counting()?;
    }
    vendor::ensure()?;
    let model = if models::ids().any(|id| id == args.model) {
        models::ensure(&args.model)?
    } else {
        PathBuf::from(&args.model)
    };
    ensure!(
        model.is_file(),
        "no model or file `{}`; give a GGUF file or one of: {}",
        args.model,
        models::ids().collect::<Vec<_>>().join(", ")
    );

    let target = paths::target()?;
    let scratch = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&target)
        .with_context(|| format!("cannot write to {}", target.display()))?;
    let expanded = match &args.expanded {
        Some(file) => file.clone(),
        None => expand(&model, &spec, scratch.path())?,
    };
    let case = Case {
        model,
        expanded,
        spec,
    };
    let report = measure(args, &case, sizes, machine, scratch.path())?;

    let json = || serde_json::to_vec_pretty(&report).context("cannot write the figures as JSON");
    match &args.json {
        Some(path) if path == Path::new("-") => {
            println!("{}", String::from_utf8_lossy(&json()?));
        }
        Some(path) => {
            print!("{}", report.markdown());
            write_atomic(path, &json()?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => print!("{}", report.markdown()),
    }
    let failed = report.failed();
    let list: Vec<String> = failed
        .iter()
        .map(|g| format!("\n    {}: {}", g.requirement, g.found))
        .collect();
    ensure!(
        failed.is_empty(),
        "{} of {} gates failed:{}",
        failed.len(),
        report.gates.len(),
        list.concat()
    );
    Ok(())
}

fn sizes(args: &Args, cores: usize) -> Result<Sizes> {
    let evaluated = args.prefill + args.decode;
    let context = args.context.unwrap_or(evaluated);
    ensure!(
        context >= evaluated,
        "a context of {context} tokens has no room for {} and {}; give --context {evaluated} or more",
        args.prefill,
        args.decode
    );
    Ok(Sizes {
        prefill: args.prefill,
        decode: args.decode,
        context,
        threads: args
            .threads
            .map_or_else(|| u32::try_from(cores), Ok)
            .context("too many cores")?,
    })
}

fn measure(
    args: &Args,
    case: &Case,
    sizes: Sizes,
    machine: Machine,
    scratch: &Path,
) -> Result<Report> {
    let mut figures = Figures::default();
    for v in ALL {
        let path = case.file(v);
        let meta = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        figures.file_bytes[v.index()] = meta.len();
    }
    let timed = Programs::timed()?;
    let counted = (!args.no_callgrind).then(Programs::counted).transpose()?;

    {
        let _step = Step::spinner("measuring memory");
        // Threads would wait for each other on a busy machine, and change no size by much.
        let sizes = Sizes {
            threads: 1,
            ..sizes
        };
        for _ in 0..MEMORY_ROUNDS {
            for v in ALL {
                let sample = case.sample(&timed, v, &sizes, Load::Read)?;
                figures.read[v.index()].push(sample);
            }
        }
    }
    if !args.no_times {
        let _step = Step::spinner("measuring times");
        for round in 0..args.rounds as usize {
            // Each goes first in turn.
            for v in ALL.iter().cycle().skip(round % ALL.len()).take(ALL.len()) {
                let sample = case.sample(&timed, *v, &sizes, Load::Mmap)?;
                figures.mapped[v.index()].push(sample);
            }
            if figures.converged() {
                break;
            }
        }
    }
    let counted_sizes = Sizes {
        prefill: sizes.prefill.min(MAX_COUNTED.0),
        decode: sizes.decode.min(MAX_COUNTED.1),
        threads: 1,
        ..sizes
    };
    if let Some(programs) = &counted {
        let _step = Step::spinner("counting instructions");
        let mut counts = Vec::new();
        for v in ALL {
            counts.push(case.count(programs, v, &counted_sizes, scratch)?);
        }
        figures.instructions = counts.try_into().ok();
    }

    let name = case.model.file_name().unwrap_or_default();
    let about = About {
        machine,
        upstream: Pin::read(&paths::vendor())?.upstream.commit,
        model: name.to_string_lossy().into_owned(),
        spec: case.spec.to_string(),
        timed: sizes,
        counted: counted.map(|_| counted_sizes),
    };
    Report::new(about, &figures).context("a variant did not run")
}

/// Writes the model with its layers as the spec runs them, with the writer of the tests.
fn expand(model: &Path, spec: &Spec, dir: &Path) -> Result<PathBuf> {
    let _step = Step::spinner("writing the expanded model");
    let path = dir.join("expanded.gguf");
    let out = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(paths::root())
        .args([
            "run",
            "--quiet",
            "-p",
            "rys-tests",
            "--example",
            "expand",
            "--",
        ])
        .args([model, Path::new(&spec.to_string()), &path])
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    ensure!(
        out.status.success(),
        "cannot write the expanded model: {}",
        String::from_utf8_lossy(&out.stderr)
            .trim_end()
            .trim_start_matches("error: ")
    );
    Ok(path)
}
