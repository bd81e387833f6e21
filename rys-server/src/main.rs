//! llama.cpp's server with layers repeated at run time, in one file.
//!
//! ```text
//! rys-server [--server] -m MODEL -rl SPEC ...    the HTTP server (llama-server); the default
//! rys-server --chat     -m MODEL -rl SPEC ...    a chat in the terminal (llama-cli)
//! rys-server --cli      -m MODEL -rl SPEC -p ... text after a prompt (llama-completion)
//! rys-server plan SPEC  [-m MODEL | --n-layer N] what a spec runs and costs
//! ```
//!
//! Every option of the llama.cpp program works, from the command line, the environment and the
//! config file; its own code parses them and runs in this process.
//!
//! # Exit codes
//!
//! | code | when |
//! |---|---|
//! | 0 | it did what it was asked |
//! | 2 | an option of this program is wrong, or a spec or plan was refused: it does not parse, does not fit the model's layers, or the model's architecture cannot repeat layers |
//! | other | that of the llama.cpp program; 1 for most failures, such as a file that is not a model |

mod config_file;
mod equivalent;
mod failure;
mod mode;
mod plan;
mod report;
mod run;

use std::env;
use std::ffi::OsString;
use std::process::exit;

fn main() {
    let args: Vec<OsString> = env::args_os().collect();
    let done = if args.get(1).is_some_and(|a| a == "plan") {
        plan::main(&args)
    } else {
        run::main(args)
    };
    let code = done.unwrap_or_else(|failure| failure.print());
    exit(code);
}
