//! Progress of steps that take more than a moment, on a terminal and in a log.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

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

    fn start(bar: ProgressBar, what: &str) -> Step {
        // Without a terminal the bar is invisible: say once what happens.
        if !std::io::stderr().is_terminal() {
            eprintln!("{what} ...");
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
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
