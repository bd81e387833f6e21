//! Pieces of a spec for people to read: bounded in width whatever the spec's length, and without
//! characters that would disturb a terminal or a log.

use std::fmt::{self, Write};
use std::ops::Range;

/// Columns of the text shown around an error.
const WIDTH: usize = 64;
/// Columns kept for what follows the start of the error.
const AFTER: usize = 40;
/// Longest token quoted within a message, in columns.
const TOKEN: usize = 24;

/// `text` in backquotes, escaped and cut to [`TOKEN`] columns.
pub(crate) fn quoted(text: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let end = forward(text, 0, TOKEN);
        let more = if end < text.len() { "…" } else { "" };
        f.write_char('`')?;
        for c in text[..end].chars() {
            write_char(f, c)?;
        }
        write!(f, "{more}`")
    })
}

/// Writes the text around each span with carets under it, each line indented and preceded by a
/// line feed. Spans that fit together share a line.
pub(crate) fn write_carets(
    f: &mut fmt::Formatter<'_>,
    text: &str,
    spans: &[Range<usize>],
) -> fmt::Result {
    let start = spans.iter().map(|s| s.start).min().unwrap_or(0);
    let end = spans.iter().map(|s| s.end).max().unwrap_or(0);
    if forward(text, start, AFTER) >= end {
        return write_line(f, text, start, spans);
    }
    let mut ordered: Vec<_> = spans.to_vec();
    ordered.sort_by_key(|s| s.start);
    for span in ordered {
        write_line(f, text, span.start, &[span])?;
    }
    Ok(())
}

fn write_line(
    f: &mut fmt::Formatter<'_>,
    text: &str,
    focus: usize,
    spans: &[Range<usize>],
) -> fmt::Result {
    let end = forward(text, focus, AFTER);
    let start = backward(text, focus, WIDTH - columns(&text[focus..end]));
    let end = forward(text, start, WIDTH);
    let (before, after) = (
        if start > 0 { "…" } else { "" },
        if end < text.len() { "…" } else { "" },
    );

    write!(f, "\n  {before}")?;
    let mut carets = before.replace('…', " ");
    for (i, c) in text[start..end].char_indices() {
        write_char(f, c)?;
        let marked = spans.iter().any(|s| s.contains(&(start + i)));
        let mark = if marked { '^' } else { ' ' };
        carets.extend(std::iter::repeat_n(mark, char_columns(c)));
    }
    // An empty span is the end of the text.
    if spans.iter().any(|s| s.is_empty()) {
        carets.push('^');
    }
    write!(f, "{after}\n  {}", carets.trim_end())
}

/// The furthest end from `start` so that the text between takes at most `budget` columns.
fn forward(text: &str, start: usize, budget: usize) -> usize {
    advance(
        text[start..]
            .char_indices()
            .map(|(i, c)| (start + i + c.len_utf8(), c)),
        start,
        budget,
    )
}

/// The furthest start before `end` so that the text between takes at most `budget` columns.
fn backward(text: &str, end: usize, budget: usize) -> usize {
    advance(text[..end].char_indices().rev(), end, budget)
}

fn advance(chars: impl Iterator<Item = (usize, char)>, from: usize, budget: usize) -> usize {
    let mut used = 0;
    let mut at = from;
    for (boundary, c) in chars {
        used += char_columns(c);
        if used > budget {
            break;
        }
        at = boundary;
    }
    at
}

fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

fn write_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    f.write_str(&shown(c))
}

fn char_columns(c: char) -> usize {
    match shown(c).chars().count() {
        1 if is_wide(c) => 2,
        n => n,
    }
}

/// Printable characters as they are; controls, format and combining characters as escapes.
fn shown(c: char) -> String {
    match c {
        ' '..='~' => c.into(),
        _ if c.is_control() => c.escape_default().to_string(),
        _ => c.escape_debug().to_string(),
    }
}

/// The blocks of East Asian wide and full-width characters and emoji (Unicode UAX #11).
fn is_wide(c: char) -> bool {
    matches!(u32::from(c),
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3
        | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f | 0x1f680..=0x1f6ff | 0x1f900..=0x1f9ff | 0x20000..=0x3fffd)
}
