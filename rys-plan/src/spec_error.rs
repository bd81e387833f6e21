use std::fmt;
use std::ops::Range;

use crate::excerpt::{quoted, write_carets};
use crate::parse::{Fault, MAX_INDEX};

/// What is wrong with a spec. The numbers are those of `common_repeat_layers_err` in
/// `common/repeat-layers.h`, whose `NONE` is 0; the first error in the text is reported, an overlap
/// only when there is no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum SpecErrorKind {
    /// No block at all. Points at the end of the text.
    Empty = 1,
    /// Something else stands where an index belongs, as in `,34` or `26`. Points at it.
    MissingIndex = 2,
    /// A third index in a block, as in `26,34,40`. Points at the separator before it.
    ExtraIndex = 3,
    /// A word stands where an index belongs, as in `x,34`. Points at the word.
    NotANumber = 4,
    /// An index below zero. Points at the sign and the digits.
    Negative = 5,
    /// An index above `i32::MAX`. Points at its digits.
    TooLarge = 6,
    /// Neither `,` nor `-` follows a block's start, as in `26 34`. Points at what does.
    BadSeparator = 7,
    /// The `..` notation. Points at the dots.
    RangeDots = 8,
    /// A `(` without its `)` or the reverse. Points at it.
    UnbalancedParen = 9,
    /// No block before or after a `;` or `+`. Points at that separator.
    EmptyBlock = 10,
    /// `start >= end`. Points at the range.
    NotAscending = 11,
    /// `0,0`, which elsewhere stands for "no repeats". Points at the range.
    ZeroBlock = 12,
    /// Neither `;` nor `+` follows a block, as in `26,34x`. Points at what does.
    TrailingGarbage = 13,
    /// The RYS notations `layers:` and `repeats:`. Points at the prefix.
    OtherForm = 14,
    /// Two blocks share a layer. Points at both ranges.
    Overlap = 15,
}

impl SpecErrorKind {
    /// The kind's number in C++ and in the C++ shim; never 0.
    pub fn code(self) -> i32 {
        self as i32
    }
}

/// A spec that cannot be parsed.
///
/// `{}` is one line: what was given, what is allowed and what to do. `{:#}` adds the part of the
/// spec that is wrong with carets under it.
///
/// ```
/// let error = "28,34;26..33".parse::<rys_plan::Spec>().unwrap_err();
/// assert_eq!(error.span(), 8..10);
/// assert_eq!(
///     format!("{error:#}"),
///     "`..` is not part of a spec: blocks are half-open, \
///      write `26,33` for layers 26 to 32 or `26,34` for layers 26 to 33
///   28,34;26..33
///           ^^",
/// );
/// ```
#[derive(Clone)]
pub struct SpecError {
    fault: Fault,
    text: Box<str>,
}

impl SpecError {
    pub(crate) fn new(fault: Fault, text: &str) -> Self {
        Self {
            fault,
            text: text.into(),
        }
    }

    /// What is wrong.
    pub fn kind(&self) -> SpecErrorKind {
        self.fault.kind
    }

    /// Where, in bytes of [`text`](Self::text); empty at its end. Of two overlapping blocks, the
    /// later in the text.
    pub fn span(&self) -> Range<usize> {
        self.fault.span.clone()
    }

    /// The earlier of two overlapping blocks.
    pub fn other_span(&self) -> Option<Range<usize>> {
        self.fault.other.clone()
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn write_message(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SpecErrorKind as Kind;
        let span = &self.fault.span;
        let (before, given) = (&self.text[..span.start], &self.text[span.clone()]);
        let found = found(given);
        match self.fault.kind {
            Kind::Empty => f.write_str(
                "the spec is empty: give at least one block of layers, for example `26,34`, \
                 or leave the option out to run without repeats",
            ),
            Kind::MissingIndex => match last_number(before) {
                Some(n) if !given.starts_with([',', '-']) => write!(
                    f,
                    "a block needs two indices, only {n} is given: write `start,end`, \
                         for example `{n},{}` for layer {n} alone",
                    n + 1
                ),
                _ if given.is_empty() => f.write_str(
                    "a layer index is missing at the end: \
                         a block is `start,end`, for example `26,34`",
                ),
                _ => write!(
                    f,
                    "a layer index is missing before {found}: \
                         a block is `start,end`, for example `26,34`"
                ),
            },
            Kind::ExtraIndex => write!(
                f,
                "{found} follows a complete block: a block is `start,end` and no more, \
                 separate blocks with `;` or `+`, for example `28,34;43,45`"
            ),
            Kind::NotANumber if given.ends_with(':') => write!(
                f,
                "unknown prefix {found}: a spec is a list of blocks such as `26,34`, \
                 only `blocks:` may stand before it"
            ),
            Kind::NotANumber => write!(
                f,
                "{found} is not a layer index: write it with the digits 0 to 9, \
                 for example `26,34`"
            ),
            Kind::Negative => write!(
                f,
                "layer index {found} is negative: layers count from 0, for example `26,34`"
            ),
            Kind::TooLarge => write!(
                f,
                "layer index {found} is too large: at most {MAX_INDEX} is allowed, \
                 give layers of the model"
            ),
            Kind::BadSeparator if is_number(given) => write!(
                f,
                "`,` or `-` is missing before {found}: \
                 put one between the two indices of a block, for example `26,34`"
            ),
            Kind::BadSeparator => write!(
                f,
                "{found} stands between the two indices of a block: \
                 separate them with `,` or `-`, for example `26,34`"
            ),
            Kind::RangeDots => {
                f.write_str("`..` is not part of a spec: blocks are half-open, ")?;
                let after = &self.text[span.end..];
                let inclusive = after.starts_with('=');
                let after = after.trim_start_matches('=').trim_start_matches(' ');
                let given = last_number(before).zip(first_number(after));
                match given.filter(|&(_, last)| last < u64::from(MAX_INDEX)) {
                    Some((a, b)) if inclusive && a <= b => {
                        write!(f, "write `{a},{}` for layers {a} to {b}", b + 1)
                    }
                    Some((a, b)) if a < b => write!(
                        f,
                        "write `{a},{b}` for layers {a} to {} or `{a},{}` for layers {a} to {b}",
                        b - 1,
                        b + 1
                    ),
                    _ => f.write_str("write `26,34` for layers 26 to 33"),
                }
            }
            Kind::UnbalancedParen if given == "(" => {
                f.write_str("`(` is not closed: put `)` after the block's end, or leave both out")
            }
            Kind::UnbalancedParen => {
                f.write_str("`)` has no `(`: put `(` before the block's start, or leave both out")
            }
            Kind::EmptyBlock => {
                let follows = before
                    .trim_end_matches(' ')
                    .ends_with(|c: char| c == ')' || c.is_ascii_digit());
                let side = if follows { "after" } else { "before" };
                write!(
                    f,
                    "there is no block {side} {found}: remove it, or add a block such as `26,34`"
                )
            }
            Kind::NotAscending => {
                let (start, end) = bounds(given);
                if start > end {
                    return write!(
                        f,
                        "block `{start},{end}` ends before it starts: \
                         the start must be below the end, did you mean `{end},{start}`?"
                    );
                }
                let layer = start.min(u64::from(MAX_INDEX) - 1);
                write!(
                    f,
                    "block `{start},{end}` is empty, the end is not included: \
                     write `{layer},{}` to repeat layer {layer}",
                    layer + 1
                )
            }
            Kind::ZeroBlock => f.write_str(
                "block `0,0` repeats nothing: leave the option out to run without repeats, \
                 or write `0,1` to repeat layer 0",
            ),
            Kind::TrailingGarbage if given == "(" || is_number(given) => write!(
                f,
                "`;` or `+` is missing before {found}: \
                 put one between blocks, for example `28,34;43,45`"
            ),
            Kind::TrailingGarbage => write!(
                f,
                "{found} follows a complete block: remove it, \
                 or separate blocks with `;` or `+`, for example `28,34;43,45`"
            ),
            Kind::OtherForm => write!(
                f,
                "{found} is a RYS notation that is not supported: write the repeats as blocks, \
                 for example `blocks:26,34` to run layers 26 to 33 twice"
            ),
            Kind::Overlap => {
                let other = self.fault.other.clone().unwrap_or_default();
                let ((a, b), (c, d)) = (bounds(&self.text[other]), bounds(given));
                write!(f, "blocks `{a},{b}` and `{c},{d}` overlap: ")?;
                if (a, b) == (c, d) {
                    return f.write_str("a block can be repeated only once, remove one of them");
                }
                write!(
                    f,
                    "a layer can be repeated only once, make them disjoint or write `{},{}`",
                    a.min(c),
                    b.max(d)
                )
            }
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_message(f)?;
        if f.alternate() && !self.text.is_empty() {
            let spans: Vec<_> = [self.other_span(), Some(self.span())]
                .into_iter()
                .flatten()
                .collect();
            write_carets(f, &self.text, &spans)?;
        }
        Ok(())
    }
}

impl fmt::Debug for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpecError")
            .field("kind", &self.kind())
            .field("span", &self.span())
            .field("message", &self.to_string())
            .finish_non_exhaustive()
    }
}

impl std::error::Error for SpecError {}

/// A token quoted for a message, with the code point of a character that is not ASCII: it may look
/// like one that is.
fn found(token: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        write!(f, "{}", quoted(token))?;
        match token.chars().find(|c| !c.is_ascii()) {
            Some(c) => write!(f, " (U+{:04X})", u32::from(c)),
            None => Ok(()),
        }
    })
}

fn is_number(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_digit())
}

/// The number that `text` ends with, spaces aside.
fn last_number(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(' ');
    let begin = text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    first_number(&text[begin..])
}

/// The number that `text` begins with.
fn first_number(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    digits.map(|b| u64::from(b - b'0')).fold(None, |n, digit| {
        Some(
            n.unwrap_or(0)
                .saturating_mul(10)
                .saturating_add(digit)
                .min(u64::from(u32::MAX)),
        )
    })
}

/// Both numbers of a range that was parsed.
fn bounds(range: &str) -> (u64, u64) {
    (
        first_number(range).unwrap_or_default(),
        last_number(range).unwrap_or_default(),
    )
}
