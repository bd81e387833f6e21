//! Progress of steps that take more than a moment, on a terminal and in a log.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

/// One step; ends when dropped.
pub struct Step {
    bar: ProgressBar,
}

impl Step {
    /// A step of unknown length.
    pub fn spinner(what: &str) -> Step {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        Step::start(bar, what)
    }

    /// A step over a number of bytes.
    pub fn bytes(what: &str, total: u64) -> Step {
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}") {
            bar.set_style(style);
        }
        Step::start(bar, what)
    }

    /// A C++ build, followed in its log: ninja and make say how far they are.
    pub fn build<T>(what: &str, log: &Path, work: impl FnOnce() -> T) -> T {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} ({elapsed})")
        {
            bar.set_style(style);
        }
        let step = Step::start(bar, what);
        let (done, stop) = mpsc::channel::<()>();
        let step = &step;
        // The channel moves inside: the watching thread ends also when `work` panics.
        thread::scope(move |scope| {
            scope.spawn(move || {
                let mut announced = 0;
                while stop.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    let Some((at, of)) = fs::read_to_string(log).ok().and_then(|t| position(&t))
                    else {
                        continue;
                    };
                    step.bar.set_length(of);
                    step.bar.set_position(at);
                    if !std::io::stderr().is_terminal() && at * 10 / of.max(1) > announced {
                        announced = at * 10 / of;
                        eprintln!("{what} {at}/{of}");
                    }
                }
            });
            let result = work();
            drop(done);
            result
        })
    }

    fn start(bar: ProgressBar, what: &str) -> Step {
        // Without a terminal the bar is invisible: say once what happens.
        if !std::io::stderr().is_terminal() {
            eprintln!("{what} ...");
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        Step { bar }
    }

    /// Bytes done so far.
    pub fn at(&self, done: u64) {
        self.bar.set_position(done);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Last `[3/10]` (ninja) or `[ 30%]` (make) of a log: steps done, steps in all.
fn position(log: &str) -> Option<(u64, u64)> {
    log.lines().rev().find_map(|line| {
        let inside = line.strip_prefix('[')?.split_once(']')?.0;
        match inside.split_once('/') {
            Some((at, of)) => Some((at.parse().ok()?, of.parse().ok()?)),
            None => Some((inside.trim().strip_suffix('%')?.parse().ok()?, 100)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        assert_eq!(position("[1/9] a\n[2/9] b\nwarning\n"), Some((2, 9)));
        assert_eq!(position("[ 30%] Building\n"), Some((30, 100)));
        assert_eq!(position("-- Configuring\n[x] y\n"), None);
    }
}
