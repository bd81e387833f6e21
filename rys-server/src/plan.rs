//! `rys-server plan`: what a spec runs and costs, without loading weights.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use rys::{CacheType, Context, ContextParams, Header, Model, ModelParams, Plan, Spec};

use crate::config_file::{self, Found};
use crate::failure::Failure;
use crate::report::{self, Report};

/// Parallel sequences of the server when -np is not given; they share one pool of cells.
const SERVER_SLOTS: u32 = 4;

/// Says what a spec runs and costs. No weights are loaded.
#[derive(Debug, Parser)]
#[command(
    name = "rys-server plan",
    bin_name = "rys-server plan",
    disable_version_flag = true,
    after_help = "Exit codes: 0 done; 2 a wrong option, or a spec, plan or file that is refused; \
                  1 a model that cannot be read."
)]
struct Args {
    /// Blocks of layers to repeat, half-open: `26,34`, `28-34+43-45`
    #[arg(required_unless_present = "from", allow_hyphen_values = true)]
    spec: Option<String>,

    /// Read the spec from a mergekit passthrough YAML or a RYS config
    #[arg(long, value_name = "FILE", conflicts_with = "spec")]
    from: Option<PathBuf>,

    /// The model; only its header is read. Tells the bytes too
    #[arg(short, long, value_name = "MODEL")]
    model: Option<PathBuf>,

    /// Layers of the model, in place of the model
    #[arg(long, value_name = "N", conflicts_with = "model", value_parser = clap::value_parser!(u32).range(1..))]
    n_layer: Option<u32>,

    /// Size of the context in tokens, over all sequences; 0 is the model's own
    #[arg(short, long = "ctx-size", value_name = "CTX", default_value_t = 0)]
    ctx_size: u32,

    /// Type of the K cache (also -ctk)
    #[arg(long = "cache-type-k", value_name = "T", default_value_t = CacheType::F16)]
    cache_type_k: CacheType,

    /// Type of the V cache (also -ctv)
    #[arg(long = "cache-type-v", value_name = "T", default_value_t = CacheType::F16)]
    cache_type_v: CacheType,

    /// Parallel sequences (also -np) [default: 4 that share one pool of cells, as the server]
    #[arg(long = "parallel", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the sub-command; `args` starts with this program's name and `plan`.
pub fn main(args: &[OsString]) -> Result<i32, Failure> {
    let args = args.iter().skip(1).map(|arg| match arg.to_str() {
        // llama.cpp's names of these options have several letters after one dash.
        Some("-ctk") => "--cache-type-k".into(),
        Some("-ctv") => "--cache-type-v".into(),
        Some("-np") => "--parallel".into(),
        _ => arg.clone(),
    });
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return Ok(error.exit_code());
        }
    };
    match &args.from {
        None => {
            let text = args.spec.as_deref().unwrap_or_default();
            let spec = text.parse().map_err(|e| Failure::spec("SPEC", &e))?;
            let report = whole(&args, &spec, None)?;
            report.print(args.json)?;
            Ok(0)
        }
        Some(file) => {
            let n_layer = match &args.model {
                Some(model) => Some(header(model)?.n_layer()),
                None => args.n_layer,
            };
            let found = config_file::read(file, n_layer)?;
            if let [
                Found {
                    spec: Ok(Some(spec)),
                    n_layer,
                    ..
                },
            ] = &found[..]
            {
                whole(&args, spec, *n_layer)?.print(args.json)?;
                return Ok(0);
            }
            report::print_found(&found, args.json)?;
            let all = found.iter().all(|f| f.spec.is_ok());
            Ok(if all {
                0
            } else {
                crate::failure::REFUSED.into()
            })
        }
    }
}

/// Everything that can be said about a spec with the options given.
fn whole(args: &Args, spec: &Spec, n_layer: Option<u32>) -> Result<Report, Failure> {
    let mut report = Report::of(spec);
    if let Some(path) = &args.model {
        let on_model = |e: &rys::Error| Failure::model(path, e);
        let plan = header(path)?.plan(spec).map_err(|e| on_model(&e))?;
        let ctx = context(args, spec).map_err(|e| on_model(&e))?;
        report.add_plan(&plan);
        report.add_context(&ctx).map_err(|e| on_model(&e))?;
        return Ok(report);
    }
    match args.n_layer.or(n_layer) {
        Some(n_layer) => {
            let plan: Plan = spec
                .plan(n_layer, 0)
                .map_err(|e| Failure::refused(format!("SPEC: {e:#}")))?;
            report.add_plan(&plan);
        }
        None if args.from.is_some() => {}
        None => {
            return Err(Failure::refused(
                "the number of layers is unknown: give the model with -m or its layers with --n-layer",
            ));
        }
    }
    Ok(report)
}

fn header(path: &std::path::Path) -> Result<Header, Failure> {
    Header::read(path).map_err(|e| Failure::model(path, &e))
}

/// The context that a server with these options makes, without weights.
fn context(args: &Args, spec: &Spec) -> rys::Result<Context> {
    let path = args.model.as_deref().unwrap_or_else(|| "".as_ref());
    let model = Model::load(path, ModelParams::new().no_alloc(true))?;
    let params = ContextParams::new()
        .n_ctx(args.ctx_size)
        .n_seq_max(args.parallel.unwrap_or(SERVER_SLOTS))
        .kv_unified(args.parallel.is_none())
        .swa_full(false)
        .type_k(args.cache_type_k)
        .type_v(args.cache_type_v)
        .repeat_layers(spec.clone());
    model.context(params)
}
