//! A running `rys-server`, for the demo and for tests.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// Far above what loading a small model takes on a busy machine.
const START: Duration = Duration::from_secs(240);
const REQUEST: Duration = Duration::from_secs(240);

/// The servers that run, so that [`stop_all`] finds them.
static RUNNING: Mutex<Vec<(u32, Child)>> = Mutex::new(Vec::new());

/// A server that listens on a free port of this machine and is stopped when dropped.
#[derive(Debug)]
pub struct Server {
    id: u32,
    base: String,
    log: Arc<Mutex<String>>,
    agent: ureq::Agent,
}

impl Server {
    /// Starts `program` with `args` and waits until it has loaded its model and listens.
    ///
    /// llama.cpp's environment variables and user config are hidden from it.
    ///
    /// # Errors
    /// The program does not start, or ends before it listens; the text has the end of its log.
    pub fn start<A: AsRef<OsStr>>(program: &Path, args: &[A]) -> Result<Server> {
        let mut cmd = Command::new(program);
        isolate(&mut cmd);
        cmd.args(args)
            .args(["--host", "127.0.0.1", "--port", "0", "--log-colors", "off"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = cmd
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stderr = child.stderr.take().context("the server has no stderr")?;
        // A router passes on here what its children print.
        let stdout = child.stdout.take().context("the server has no stdout")?;
        let id = child.id();
        running().push((id, child));

        let log = Arc::new(Mutex::new(String::new()));
        let (found, address) = mpsc::channel();
        follow(stdout, &log, |_| ());
        follow(stderr, &log, move |line| {
            if let Some((_, base)) = line.split_once("listening on ") {
                let _ = found.send(base.trim().to_owned());
            }
        });
        let mut server = Server {
            id,
            base: String::new(),
            log,
            agent: ureq::Agent::config_builder()
                .timeout_global(Some(REQUEST))
                .http_status_as_error(false)
                .build()
                .into(),
        };
        match address.recv_timeout(START) {
            Ok(base) => {
                server.base = base;
                Ok(server)
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("the server did not listen in time; {}", server.log_end())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let end = match stop(server.id) {
                    Some(status) => status.to_string(),
                    None => "unknown status".into(),
                };
                bail!("the server ended ({end}); {}", server.log_end())
            }
        }
    }

    /// `GET`: the status and the body.
    ///
    /// # Errors
    /// No answer, or one that is not JSON.
    pub fn get(&self, path: &str) -> Result<(u16, Value)> {
        let mut answer = self
            .agent
            .get(format!("{}{path}", self.base))
            .call()
            .map_err(|e| self.failed(path, &e))?;
        let body = answer.body_mut().read_json();
        Ok((
            answer.status().as_u16(),
            body.map_err(|e| self.failed(path, &e))?,
        ))
    }

    /// `POST` with a JSON body: the status and the body of the answer.
    ///
    /// # Errors
    /// No answer, or one that is not JSON.
    pub fn post(&self, path: &str, body: &Value) -> Result<(u16, Value)> {
        let (status, text) = self.post_text(path, body)?;
        let value = serde_json::from_str(&text)
            .with_context(|| format!("POST {path}: the answer is not JSON: {text}"))?;
        Ok((status, value))
    }

    /// `POST` with a JSON body: the status and the text of the answer, such as a stream of events.
    ///
    /// # Errors
    /// No answer.
    pub fn post_text(&self, path: &str, body: &Value) -> Result<(u16, String)> {
        let mut answer = self
            .agent
            .post(format!("{}{path}", self.base))
            .send_json(body)
            .map_err(|e| self.failed(path, &e))?;
        let text = answer.body_mut().read_to_string();
        Ok((
            answer.status().as_u16(),
            text.map_err(|e| self.failed(path, &e))?,
        ))
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        locked(&self.log).clone()
    }

    fn failed(&self, path: &str, error: &ureq::Error) -> anyhow::Error {
        anyhow!("{path}: {error}; {}", self.log_end())
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n    ");
        format!("the end of its log:\n    {tail}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(self.id);
    }
}

/// Collects a stream until its end, so that the server never waits for room in the pipe.
fn follow(
    stream: impl Read + Send + 'static,
    log: &Arc<Mutex<String>>,
    mut see: impl FnMut(&str) + Send + 'static,
) {
    let log = Arc::clone(log);
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            see(&line);
            let mut log = locked(&log);
            log.push_str(&line);
            log.push('\n');
        }
    });
}

/// Hides llama.cpp's environment variables and the user's config file from a program.
pub fn isolate(cmd: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("LLAMA_") {
            cmd.env_remove(name);
        }
    }
    cmd.env("XDG_CONFIG_HOME", "/nonexistent");
}

/// Stops every server of this process.
pub fn stop_all() {
    let ids: Vec<u32> = running().iter().map(|(id, _)| *id).collect();
    for id in ids {
        stop(id);
    }
}

fn stop(id: u32) -> Option<ExitStatus> {
    let mut child = {
        let mut running = running();
        let at = running.iter().position(|(other, _)| *other == id)?;
        running.swap_remove(at).1
    };
    if let Ok(Some(status)) = child.try_wait() {
        return Some(status);
    }
    quit(&mut child);
    child.wait().ok()
}

/// A router stops its children on a signal that it can handle; a second one makes it exit.
fn quit(child: &mut Child) {
    let id = child.id().to_string();
    let term = || {
        Command::new("kill")
            .args(["-TERM", &id])
            .stderr(Stdio::null())
            .status()
    };
    if term().is_ok_and(|s| s.success()) {
        for _ in 0..100 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
    let _ = child.kill();
}

fn running() -> MutexGuard<'static, Vec<(u32, Child)>> {
    locked(&RUNNING)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
