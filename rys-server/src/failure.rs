//! A failure and the exit code that goes with it.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// Exit code of a wrong option of this program and of a refused spec or plan.
pub const REFUSED: u8 = 2;
/// Exit code of llama.cpp's programs for a model that they cannot load.
pub const UPSTREAM: u8 = 1;

/// What to print to stderr, and the exit code.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub text: String,
}

impl Failure {
    /// An option of this program, or a spec or plan, that is refused.
    pub fn refused(text: impl Into<String>) -> Failure {
        Failure {
            code: REFUSED,
            text: text.into(),
        }
    }

    /// A failure that llama.cpp's programs have too.
    pub fn upstream(text: impl Into<String>) -> Failure {
        Failure {
            code: UPSTREAM,
            text: text.into(),
        }
    }

    /// A spec that does not parse, with carets under the part at fault.
    pub fn spec(option: &str, error: &rys::SpecError) -> Failure {
        Failure::refused(format!("{option}: {error:#}"))
    }

    /// What went wrong with a model, and with a spec on it.
    pub fn model(model: &Path, error: &rys::Error) -> Failure {
        let on = |error: &dyn Display| format!("{} on {}: {error:#}", OPTION, model.display());
        match error {
            rys::Error::Plan(error) => Failure::refused(on(error)),
            rys::Error::UnsupportedArch { .. } => Failure::refused(on(error)),
            other => Failure::upstream(other.to_string()),
        }
    }

    /// Prints the text and returns the code.
    pub fn print(&self) -> i32 {
        // In one piece: other threads may log.
        let line = format!("error: {}\n", self.text);
        let _ = std::io::stderr().write_all(line.as_bytes());
        self.code.into()
    }
}

/// The option that carries a spec.
pub const OPTION: &str = "--repeat-layers";
