use std::fmt;
use std::ops::Range;

use crate::excerpt::write_carets;
use crate::{Block, LLAMA_MAX_LAYERS, Spec};

/// What is wrong with a spec for one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanErrorKind {
    /// A block ends past `n_layer`.
    OutOfRange,
    /// A block contains an MTP (NextN) layer.
    ReachesNextn,
    /// More passes than [`LLAMA_MAX_LAYERS`].
    TooManyLayers,
}

/// A spec that parses but does not fit a model.
///
/// Displayed like [`SpecError`](crate::SpecError): `{}` in one line, `{:#}` with carets.
///
/// ```
/// # use rys_plan::Spec;
/// let error = "28,34;60,70".parse::<Spec>()?.plan(64, 0).unwrap_err();
/// assert_eq!(
///     format!("{error:#}"),
///     "block `60,70` ends past the model's last layer: n_layer is 64, \
///      so an end can be at most 64
///   28,34;60,70
///         ^^^^^",
/// );
/// # Ok::<(), rys_plan::SpecError>(())
/// ```
#[derive(Clone)]
pub struct PlanError {
    pub(crate) kind: PlanErrorKind,
    pub(crate) n_layer: u32,
    pub(crate) n_layer_nextn: u32,
    /// The block at fault, if it is one block.
    pub(crate) block: Option<Block>,
    pub(crate) n_repeated: u32,
    pub(crate) span: Range<usize>,
    pub(crate) text: Box<str>,
}

impl PlanError {
    pub(crate) fn new(
        kind: PlanErrorKind,
        spec: &Spec,
        at: Option<usize>,
        n_layer: u32,
        n_layer_nextn: u32,
    ) -> Self {
        let spans = spec.spans();
        let span = match at.and_then(|i| spans.get(i)) {
            Some(span) => span.clone(),
            None => {
                let start = spans.iter().map(|s| s.start).min().unwrap_or(0);
                start..spans.iter().map(|s| s.end).max().unwrap_or(0)
            }
        };
        Self {
            kind,
            n_layer,
            n_layer_nextn,
            block: at.and_then(|i| spec.blocks().get(i).copied()),
            n_repeated: spec.n_repeated(),
            span,
            text: spec.text().into(),
        }
    }

    /// What is wrong.
    pub fn kind(&self) -> PlanErrorKind {
        self.kind
    }

    /// Where, in bytes of [`text`](Self::text): the block at fault, or all of them for
    /// [`PlanErrorKind::TooManyLayers`].
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The text that the spec was parsed from; empty for an identity plan.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn write_message(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_layer = self.n_layer;
        let last_nextn = n_layer.saturating_add(self.n_layer_nextn).saturating_sub(1);
        match (self.kind, self.block) {
            (PlanErrorKind::OutOfRange, Some(block)) => write!(
                f,
                "block `{block}` ends past the model's last layer: n_layer is {n_layer}, \
                 so an end can be at most {n_layer}"
            ),
            (PlanErrorKind::ReachesNextn, Some(block)) => {
                write!(
                    f,
                    "block `{block}` reaches into the model's MTP (NextN) block, "
                )?;
                if last_nextn == n_layer {
                    write!(f, "layer {n_layer}, ")?;
                } else {
                    write!(f, "layers {n_layer} to {last_nextn}, ")?;
                }
                write!(
                    f,
                    "which is never repeated: n_layer is {n_layer} without it, \
                     so an end can be at most {n_layer}"
                )
            }
            _ if n_layer > LLAMA_MAX_LAYERS => write!(
                f,
                "n_layer is {n_layer}: llama.cpp allows at most {LLAMA_MAX_LAYERS} layers \
                 (LLAMA_MAX_LAYERS)"
            ),
            _ => {
                write!(
                    f,
                    "repeating {} of {n_layer} layers makes n_layer_eff {}: \
                     llama.cpp allows at most {LLAMA_MAX_LAYERS} (LLAMA_MAX_LAYERS), ",
                    self.n_repeated,
                    u64::from(n_layer) + u64::from(self.n_repeated)
                )?;
                match LLAMA_MAX_LAYERS - n_layer {
                    0 => f.write_str("so no layer of this model can be repeated"),
                    n => write!(f, "repeat at most {n} layers"),
                }
            }
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_message(f)?;
        if f.alternate() && !self.text.is_empty() {
            write_carets(f, &self.text, std::slice::from_ref(&self.span))?;
        }
        Ok(())
    }
}

impl fmt::Debug for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanError")
            .field("kind", &self.kind)
            .field("span", &self.span)
            .field("message", &self.to_string())
            .finish_non_exhaustive()
    }
}

impl std::error::Error for PlanError {}
