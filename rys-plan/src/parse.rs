use std::ops::Range;

use crate::{Block, SpecErrorKind as Kind};

/// Largest index: layer indices cross the C ABI as `int32_t`.
pub(crate) const MAX_INDEX: u32 = i32::MAX as u32;

/// What is wrong and where, as byte ranges of the text.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
    /// The earlier of two overlapping blocks.
    pub(crate) other: Option<Range<usize>>,
}

impl Fault {
    fn new(kind: Kind, span: Range<usize>) -> Self {
        Self {
            kind,
            span,
            other: None,
        }
    }
}

/// Parses a spec into its blocks, each with its place in the text, sorted by start.
///
/// One pass over the bytes: every token and separator is ASCII, so a byte that is not can only be
/// an error, and all spans fall on character boundaries.
pub(crate) fn parse(text: &str) -> Result<Vec<(Block, Range<usize>)>, Fault> {
    let mut cursor = Cursor {
        text: text.as_bytes(),
        pos: 0,
    };
    let mut blocks = cursor.spec()?;

    blocks.sort_by_key(|(block, _)| block.start());
    for pair in blocks.windows(2) {
        if let [(a, a_span), (b, b_span)] = pair
            && a.end() > b.start()
        {
            let (first, second) = if a_span.start < b_span.start {
                (a_span, b_span)
            } else {
                (b_span, a_span)
            };
            return Err(Fault {
                kind: Kind::Overlap,
                span: second.clone(),
                other: Some(first.clone()),
            });
        }
    }
    Ok(blocks)
}

/// The end of the word at `pos`: a number, a separator, or everything up to the next of those.
fn word_end(text: &[u8], pos: usize) -> usize {
    let rest = text.get(pos..).unwrap_or_default();
    let run = |class: fn(u8) -> bool| rest.iter().take_while(|&&b| class(b)).count();
    let len = match rest.first() {
        Some(b) if b.is_ascii_digit() => run(|b| b.is_ascii_digit()),
        Some(&b) if is_separator(b) => 1,
        _ => run(|b| !b.is_ascii_digit() && !is_separator(b)),
    };
    pos + len
}

fn is_separator(b: u8) -> bool {
    b" ,-;+()".contains(&b)
}

struct Cursor<'a> {
    text: &'a [u8],
    pos: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.pos).copied()
    }

    fn at(&self, token: &[u8]) -> bool {
        self.text[self.pos..].starts_with(token)
    }

    fn skip_spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.pos += 1;
        }
    }

    /// A fault covering the byte at the cursor, or nothing at the end of the text.
    fn fault_here(&self, kind: Kind) -> Fault {
        Fault::new(kind, self.pos..self.text.len().min(self.pos + 1))
    }

    fn fault_word(&self, kind: Kind) -> Fault {
        Fault::new(kind, self.pos..word_end(self.text, self.pos))
    }

    fn spec(&mut self) -> Result<Vec<(Block, Range<usize>)>, Fault> {
        self.skip_spaces();
        for form in [b"layers:".as_slice(), b"repeats:"] {
            if self.at(form) {
                return Err(Fault::new(Kind::OtherForm, self.pos..self.pos + form.len()));
            }
        }
        if self.at(b"blocks:") {
            self.pos += b"blocks:".len();
            self.skip_spaces();
        }
        if self.peek().is_none() {
            return Err(self.fault_here(Kind::Empty));
        }

        let mut blocks = Vec::new();
        let mut separator = 0;
        loop {
            self.skip_spaces();
            match self.peek() {
                None => return Err(Fault::new(Kind::EmptyBlock, separator..separator + 1)),
                Some(b';' | b'+') => return Err(self.fault_here(Kind::EmptyBlock)),
                Some(b'(') => {
                    let open = self.pos;
                    self.pos += 1;
                    blocks.push(self.range()?);
                    self.close(open)?;
                    if self.peek().is_some_and(|b| b",-".contains(&b)) {
                        return Err(self.fault_word(Kind::TrailingGarbage));
                    }
                }
                Some(_) => blocks.push(self.range()?),
            }
            match self.peek() {
                None => return Ok(blocks),
                Some(b';' | b'+') => separator = self.pos,
                Some(b',' | b'-') => return Err(self.fault_here(Kind::ExtraIndex)),
                Some(b')') => return Err(self.fault_here(Kind::UnbalancedParen)),
                Some(_) => return Err(self.fault_word(Kind::TrailingGarbage)),
            }
            self.pos += 1;
        }
    }

    /// `index ("," / "-") index` and the spaces after it.
    fn range(&mut self) -> Result<(Block, Range<usize>), Fault> {
        self.skip_spaces();
        let begin = self.pos;
        let start = self.index()?;
        self.skip_spaces();
        match self.peek() {
            Some(b',' | b'-') => self.pos += 1,
            None | Some(b';' | b'+' | b')') => return Err(self.fault_here(Kind::MissingIndex)),
            Some(b'.') if self.at(b"..") => {
                return Err(Fault::new(Kind::RangeDots, self.pos..self.pos + 2));
            }
            Some(_) => return Err(self.fault_word(Kind::BadSeparator)),
        }
        self.skip_spaces();
        let end = self.index()?;
        let span = begin..self.pos;
        self.skip_spaces();
        match Block::new(start, end) {
            Some(block) => Ok((block, span)),
            None if end == 0 && start == 0 => Err(Fault::new(Kind::ZeroBlock, span)),
            None => Err(Fault::new(Kind::NotAscending, span)),
        }
    }

    fn index(&mut self) -> Result<u32, Fault> {
        let begin = self.pos;
        match self.peek() {
            None | Some(b',' | b';' | b'+' | b')') => {
                return Err(self.fault_here(Kind::MissingIndex));
            }
            Some(b'-') => {
                self.pos += 1;
                self.digits();
                if self.pos == begin + 1 {
                    self.pos = begin;
                    return Err(self.fault_here(Kind::MissingIndex));
                }
                return Err(Fault::new(Kind::Negative, begin..self.pos));
            }
            Some(b) if !b.is_ascii_digit() => return Err(self.fault_word(Kind::NotANumber)),
            Some(_) => {}
        }
        match self.digits() {
            Some(index) => Ok(index),
            None => Err(Fault::new(Kind::TooLarge, begin..self.pos)),
        }
    }

    /// The value of the digits at the cursor; `None` above [`MAX_INDEX`].
    fn digits(&mut self) -> Option<u32> {
        let mut value = Some(0u32);
        while let Some(b @ b'0'..=b'9') = self.peek() {
            let digit = u32::from(b - b'0');
            value = value
                .and_then(|v| v.checked_mul(10)?.checked_add(digit))
                .filter(|&v| v <= MAX_INDEX);
            self.pos += 1;
        }
        value
    }

    /// The `)` of a block and the spaces after it.
    fn close(&mut self, open: usize) -> Result<(), Fault> {
        match self.peek() {
            Some(b')') => {
                self.pos += 1;
                self.skip_spaces();
                Ok(())
            }
            None | Some(b';' | b'+') => Err(Fault::new(Kind::UnbalancedParen, open..open + 1)),
            Some(b',' | b'-') => Err(self.fault_here(Kind::ExtraIndex)),
            Some(_) => Err(self.fault_word(Kind::TrailingGarbage)),
        }
    }
}
