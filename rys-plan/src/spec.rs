use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::str::FromStr;

use crate::{Plan, PlanError, SpecError, parse, plan};

/// A half-open, zero-based range `[start, end)` of source layers that run a second time.
///
/// Never empty: `start < end <= i32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    start: u32,
    end: u32,
}

impl Block {
    pub(crate) fn new(start: u32, end: u32) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// First layer of the block.
    pub fn start(self) -> u32 {
        self.start
    }

    /// One past the last layer of the block.
    pub fn end(self) -> u32 {
        self.end
    }

    /// Number of layers, which is also the number of passes the block adds; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub fn len(self) -> u32 {
        self.end - self.start
    }

    /// The layers as a range.
    pub fn range(self) -> Range<u32> {
        self.start..self.end
    }
}

impl fmt::Display for Block {
    /// `26,34`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.start, self.end)
    }
}

/// Which blocks of layers to repeat, not yet tied to a model.
///
/// Parsing takes the grammar of the [crate documentation](crate), in time linear in the text apart
/// from sorting the blocks. Display gives the canonical form, which parses to an equal spec. The
/// text it came from is kept for error messages and ignored by `Eq` and `Hash`.
///
/// ```
/// use rys_plan::Spec;
///
/// let spec: Spec = "(43-45) + (28-34)".parse()?;
/// assert_eq!(spec.to_string(), "28,34;43,45");
/// assert_eq!(spec, "blocks:28,34;43,45".parse()?);
/// # Ok::<(), rys_plan::SpecError>(())
/// ```
#[derive(Clone)]
pub struct Spec {
    blocks: Vec<Block>,
    spans: Vec<Range<usize>>,
    text: Box<str>,
}

impl Spec {
    /// Makes a spec from half-open ranges of layers, in any order.
    ///
    /// # Errors
    ///
    /// The same as parsing the ranges as text: none given, not ascending, overlapping, or above
    /// `i32::MAX`.
    ///
    /// ```
    /// # use rys_plan::{Spec, SpecErrorKind};
    /// assert_eq!(Spec::from_ranges([43..45, 28..34])?.to_string(), "28,34;43,45");
    /// assert_eq!(Spec::from_ranges([4..8, 6..9]).unwrap_err().kind(), SpecErrorKind::Overlap);
    /// # Ok::<(), rys_plan::SpecError>(())
    /// ```
    pub fn from_ranges(ranges: impl IntoIterator<Item = Range<u32>>) -> Result<Self, SpecError> {
        let blocks: Vec<String> = ranges
            .into_iter()
            .map(|r| format!("{},{}", r.start, r.end))
            .collect();
        blocks.join(";").parse()
    }

    /// The blocks, ascending and disjoint; at least one.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Where each of [`blocks`](Self::blocks) stands in [`text`](Self::text), in bytes.
    pub fn spans(&self) -> &[Range<usize>] {
        &self.spans
    }

    /// The text this spec was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Number of passes the spec adds to a model's own.
    pub fn n_repeated(&self) -> u32 {
        // Disjoint blocks below i32::MAX: the sum cannot overflow.
        self.blocks.iter().map(|b| b.len()).sum()
    }

    /// The spec as `28-34+43-45`, for places that end a value at `;` or split it at `,`: INI
    /// presets, config files, shells, `llama-bench`.
    pub fn portable(&self) -> impl fmt::Display {
        fmt::from_fn(|f| write_blocks(f, &self.blocks, '-', '+'))
    }

    /// Expands the spec for a model of `n_layer` layers, not counting the `n_layer_nextn` MTP
    /// (NextN) layers that follow them and are never repeated.
    ///
    /// # Errors
    ///
    /// A block that ends past `n_layer`, or more passes than llama.cpp's `LLAMA_MAX_LAYERS`.
    ///
    /// ```
    /// # use rys_plan::Spec;
    /// let plan = "26,34".parse::<Spec>()?.plan(64, 0)?;
    /// assert_eq!(plan.n_layer_eff(), 72);
    /// assert_eq!(plan.to_string(), "0..=33 | 26..=33 | 34..=63");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan(&self, n_layer: u32, n_layer_nextn: u32) -> Result<Plan, PlanError> {
        plan::expand(self, n_layer, n_layer_nextn)
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match parse::parse(text) {
            Ok(located) => {
                let (blocks, spans) = located.into_iter().unzip();
                Ok(Self {
                    blocks,
                    spans,
                    text: text.into(),
                })
            }
            Err(fault) => Err(SpecError::new(fault, text)),
        }
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks
    }
}

impl Eq for Spec {}

impl Hash for Spec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.blocks.hash(state);
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_blocks(f, &self.blocks, ',', ';')
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({self})")
    }
}

fn write_blocks(
    f: &mut fmt::Formatter<'_>,
    blocks: &[Block],
    within: char,
    between: char,
) -> fmt::Result {
    for (i, block) in blocks.iter().enumerate() {
        if i > 0 {
            write!(f, "{between}")?;
        }
        write!(f, "{}{within}{}", block.start, block.end)?;
    }
    Ok(())
}
