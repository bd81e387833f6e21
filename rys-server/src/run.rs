//! A program of llama.cpp, with the checks and the help text of this one around it.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;

use rys::tool::{self, Checks, Exit, ToolParams};
use rys::{Header, Spec};

use crate::failure::{Failure, OPTION};
use crate::mode;

const HELP: &str = "

----- rys-server -----

this program is llama.cpp with layers repeated at run time. first argument or flag:
--server                                the HTTP server, with the options above (default)
--chat                                  a chat in the terminal, with the options of llama-cli
--cli                                   text after a prompt (-p), with the options of llama-completion
                                        without --chat and --cli, `rys-server --help` lists the server's options
plan SPEC [-m MODEL | --n-layer N]      what a spec runs and costs, no weights loaded; see `rys-server plan --help`

-rl,   --repeat-layers SPEC             blocks of layers to run twice with the same weights, half-open and zero-based:
                                        26-34 repeats layers 26 to 33, 28-34+43-45 two blocks
                                        (env: LLAMA_ARG_REPEAT_LAYERS, config file and presets: repeat-layers)

exit codes: 0 done; 2 an option of rys-server, or a spec or plan that is refused (it does not parse, does not fit the
model's layers, or the model's architecture cannot repeat layers); any other is llama.cpp's, 1 for most failures
";

/// Runs the program that `args` (with this program's name first) ask for; returns its exit code.
pub fn main(args: Vec<OsString>) -> Result<i32, Failure> {
    let (tool, args) = mode::take(args)?;
    if let Some(last) = args.last()
        && args.len() > 1
        && is_option(last)
    {
        return Err(Failure::refused(format!(
            "{}: a spec is missing after it, for example `{OPTION} 10-14`",
            last.display()
        )));
    }
    if args.iter().skip(1).any(|a| a == "--version") {
        let _ = writeln!(
            std::io::stdout(),
            "rys-server {}",
            env!("CARGO_PKG_VERSION")
        );
    }
    tool::run(tool, args, &Own).map_err(|e| Failure::upstream(e.to_string()))
}

fn is_option(arg: &OsStr) -> bool {
    arg == "-rl" || arg == OPTION || arg == "--repeat_layers"
}

struct Own;

impl Checks for Own {
    fn refused(&self, spec: &str) -> Exit {
        let failure = match spec.parse::<Spec>() {
            Err(error) => Failure::spec(OPTION, &error),
            // Both parsers are held to the same table, so this is a defect; refuse all the same.
            Ok(spec) => Failure::refused(format!("{OPTION}: llama.cpp refuses `{spec}`")),
        };
        report(&failure)
    }

    fn params(&self, params: &ToolParams) -> Result<(), Exit> {
        if params.spec.is_some() && params.split_tensor {
            return Err(report(&Failure::refused(format!(
                "{OPTION} with --split-mode tensor: that mode takes layer numbers from the names of \
                 KV caches, where a plan numbers its passes; use --split-mode layer"
            ))));
        }
        let files = [
            (params.model.as_deref(), params.spec.as_deref()),
            (params.draft.as_deref(), None),
        ];
        let checked = files.into_iter().try_for_each(|file| match file {
            (Some(model), spec) if model.exists() || !params.remote => check(model, spec),
            // None, or still to be downloaded.
            _ => Ok(()),
        });
        checked.map_err(|failure| report(&failure))
    }

    fn help(&self) -> String {
        HELP.into()
    }
}

/// Reads a model's header, which refuses what llama.cpp's loader asserts on, and tries the
/// plan on it.
fn check(model: &Path, spec: Option<&str>) -> Result<(), Failure> {
    let header = Header::read(model).map_err(|e| Failure::model(model, &e))?;
    if let Some(spec) = spec {
        let spec: Spec = spec.parse().map_err(|e| Failure::spec(OPTION, &e))?;
        header.plan(&spec).map_err(|e| Failure::model(model, &e))?;
    }
    Ok(())
}

fn report(failure: &Failure) -> Exit {
    failure.print();
    Exit::new(failure.code).unwrap_or(Exit::MIN)
}
