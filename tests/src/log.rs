//! llama.cpp's log, by thread and in whole lines.

use std::cell::RefCell;
use std::sync::Once;

use rys::log::{Level, set_sink};

/// Pieces as llama.cpp logged them, with `debug`, `info`, `warn` or `error`.
pub type Pieces = Vec<(String, String)>;

thread_local! {
    static PIECES: RefCell<Option<Pieces>> = const { RefCell::new(None) };
}

/// Takes llama.cpp's log; what no [`capture`] asks for is dropped.
pub fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // the first call of this kind starts llama.cpp and takes its log
        // SAFETY: null is refused.
        drop(unsafe { rys::Model::from_raw(std::ptr::null_mut()) });
        set_sink(|level, text| {
            let level = match level {
                Level::Error => "error",
                Level::Warn => "warn",
                Level::Info => "info",
                _ => "debug",
            };
            PIECES.with_borrow_mut(|p| {
                if let Some(p) = p {
                    p.push((level.into(), text.into()));
                }
            });
        });
    });
}

/// Runs `f` and returns what it logged on this thread.
pub fn capture<T>(f: impl FnOnce() -> T) -> (T, Pieces) {
    install();
    let outer = PIECES.replace(Some(Vec::new()));
    let value = f();
    let pieces = PIECES.replace(outer).unwrap_or_default();
    (value, pieces)
}

/// Whole lines, `level: text`, with timings and addresses replaced.
pub fn lines(pieces: &Pieces) -> Vec<String> {
    let mut lines = Vec::new();
    let mut level = "";
    let mut text = String::new();
    for (l, piece) in pieces {
        if text.is_empty() {
            level = l;
        }
        text.push_str(piece);
        while let Some(end) = text.find('\n') {
            let rest = text.split_off(end + 1);
            lines.push(format!("{level}: {}", normal(text.trim_end())));
            text = rest;
            level = l;
        }
    }
    if !text.is_empty() {
        lines.push(format!("{level}: {}", normal(&text)));
    }
    lines
}

/// Replaces `0x…` addresses and numbers before `ms` or `seconds`.
fn normal(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let shown = words.iter().enumerate().map(|(i, word)| {
        let unit = words.get(i + 1).copied().unwrap_or_default();
        let timing = ["ms", "seconds", "us"].iter().any(|u| unit.starts_with(u));
        if word.starts_with("0x") {
            "0x…"
        } else if timing && word.starts_with(|c: char| c.is_ascii_digit()) {
            "…"
        } else {
            word
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The text after `prefix` in the only line that has it.
pub fn value<'a>(lines: &'a [String], prefix: &str) -> &'a str {
    let mut found = lines
        .iter()
        .filter_map(|l| l.split_once(prefix).map(|(_, v)| v));
    let value = found
        .next()
        .unwrap_or_else(|| panic!("no line with {prefix:?} in {lines:#?}"));
    assert_eq!(found.next(), None, "two lines with {prefix:?}");
    value
}
