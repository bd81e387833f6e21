//! The unpatched llama.cpp: a client of the program in `tests/reference`.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

use crate::job::{Job, Outcome};
use crate::log::Pieces;

/// Names the program.
pub const VAR: &str = "RYS_REFERENCE";

/// A running reference. Ends with this value.
pub struct Reference {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Header {
    error: Option<String>,
    rets: Vec<i32>,
    sizes: Vec<usize>,
    log: Pieces,
    model_log: Pieces,
}

impl Reference {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// Without the program: these tests compare with it.
    pub fn start() -> Self {
        let program = env::var_os(VAR).unwrap_or_else(|| {
            panic!(
                "{VAR} is not set: it names the program on an unpatched llama.cpp that these tests \
                 compare with; run `cargo xtask test`, which builds and sets it"
            )
        });
        let mut child = Command::new(&program)
            // a failed assertion would run a debugger, which writes to stdout
            .env("GGML_NO_BACKTRACE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{VAR}={}: {e}; run `cargo xtask test`", program.display()));
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().expect("piped")),
            child,
        }
    }

    /// Sends a job; [`receive`](Self::receive) must follow.
    pub fn send(&mut self, job: &Job) {
        let mut line = serde_json::to_vec(job).expect("a job is JSON");
        line.push(b'\n');
        let stdin = self.stdin.as_mut().expect("open until dropped");
        stdin.write_all(&line).expect("the reference takes jobs");
        stdin.flush().expect("the reference takes jobs");
    }

    /// The outcome of the job sent.
    pub fn receive(&mut self) -> Outcome {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .expect("the reference answers");
        assert!(!line.is_empty(), "the reference died; its stderr is above");
        let header: Header = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let read = |&n: &usize| {
            let mut bytes = vec![0; n];
            self.stdout.read_exact(&mut bytes).expect("announced bytes");
            bytes
        };
        Outcome {
            outputs: header.sizes.iter().map(read).collect(),
            error: header.error,
            rets: header.rets,
            model_log: header.model_log,
            log: header.log,
        }
    }

    pub fn run(&mut self, job: &Job) -> Outcome {
        self.send(job);
        self.receive()
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
