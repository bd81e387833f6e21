use std::fmt;
use std::ops::Range;

use crate::{Block, LLAMA_MAX_LAYERS, PlanError, PlanErrorKind, Spec};

/// The order in which a context runs a model's layers: a source layer for each pass.
///
/// `src` is the index of a source layer, that is of weights and hyperparameters; `eff` that of a
/// pass, that is of memory. Both are zero-based.
///
/// ```
/// # use rys_plan::Spec;
/// let plan = "2,4".parse::<Spec>()?.plan(6, 0)?;
/// assert_eq!(plan.as_slice(), [0, 1, 2, 3, 2, 3, 4, 5]);
/// assert_eq!((plan.n_layer(), plan.n_layer_eff(), plan.n_extra()), (6, 8, 2));
/// assert_eq!(plan.src(4), Some(2));
/// assert_eq!(plan.seams()[0].eff, 4..6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    n_layer: u32,
    src: Vec<u32>,
    seams: Vec<Seam>,
}

/// The second run of one block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Seam {
    /// The source layers that run again.
    pub block: Block,
    /// The passes that run them, half-open. The first passes are the `block.len()` before.
    pub eff: Range<u32>,
}

impl Plan {
    /// The plan of a context without repeats: each layer once.
    ///
    /// # Errors
    ///
    /// `n_layer` above [`LLAMA_MAX_LAYERS`].
    pub fn identity(n_layer: u32) -> Result<Self, PlanError> {
        if n_layer > LLAMA_MAX_LAYERS {
            return Err(PlanError {
                kind: PlanErrorKind::TooManyLayers,
                n_layer,
                n_layer_nextn: 0,
                block: None,
                n_repeated: 0,
                span: 0..0,
                text: "".into(),
            });
        }
        Ok(Self {
            n_layer,
            src: (0..n_layer).collect(),
            seams: Vec::new(),
        })
    }

    /// Number of source layers, without the MTP (NextN) ones.
    pub fn n_layer(&self) -> u32 {
        self.n_layer
    }

    /// Number of passes.
    pub fn n_layer_eff(&self) -> u32 {
        self.n_layer + self.n_extra()
    }

    /// Number of passes that the repeats add.
    pub fn n_extra(&self) -> u32 {
        self.seams.iter().map(|s| s.block.len()).sum()
    }

    /// The source layer of pass `eff`, or `None` past the last pass.
    pub fn src(&self, eff: usize) -> Option<u32> {
        self.src.get(eff).copied()
    }

    /// The source layers by pass; `n_layer_eff` values, each below `n_layer`.
    pub fn as_slice(&self) -> &[u32] {
        &self.src
    }

    /// The repeats, in the order they run; none for an identity plan.
    pub fn seams(&self) -> &[Seam] {
        &self.seams
    }

    /// Advice to give once if the plan repeats boundary layers: the first and the last
    /// `max(3, n_layer / 8)`.
    ///
    /// ```
    /// # use rys_plan::Spec;
    /// assert!("26,34".parse::<Spec>()?.plan(64, 0)?.advice().is_none());
    /// let advice = "7,9".parse::<Spec>()?.plan(64, 0)?.advice().unwrap();
    /// assert_eq!((advice.margin(), advice.inner()), (8, 8..56));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advice(&self) -> Option<BoundaryAdvice> {
        let margin = (self.n_layer / 8).max(3);
        let last = self.n_layer.saturating_sub(margin);
        let blocks: Vec<_> = self
            .seams
            .iter()
            .map(|s| s.block)
            .filter(|b| b.start() < margin || b.end() > last)
            .collect();
        (!blocks.is_empty()).then_some(BoundaryAdvice {
            n_layer: self.n_layer,
            margin,
            blocks,
        })
    }
}

/// The runs of consecutive layers, inclusive: `0..=33 | 26..=33 | 34..=63`. A repeat is always a run
/// of its own.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = 0;
        let mut separator = "";
        let mut run = |f: &mut fmt::Formatter<'_>, run: Range<u32>| {
            if run.is_empty() {
                return Ok(());
            }
            write!(f, "{separator}{}..={}", run.start, run.end - 1)?;
            separator = " | ";
            Ok(())
        };
        for Seam { block, .. } in &self.seams {
            run(f, first..block.end())?;
            run(f, block.range())?;
            first = block.end();
        }
        run(f, first..self.n_layer)
    }
}

/// Blocks that repeat boundary layers, which reliably breaks models. A warning, never a refusal:
/// the usable band depends on the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundaryAdvice {
    n_layer: u32,
    margin: u32,
    blocks: Vec<Block>,
}

impl BoundaryAdvice {
    /// Number of layers at each end that should not be repeated.
    pub fn margin(&self) -> u32 {
        self.margin
    }

    /// The layers that are not at a boundary, half-open; empty for a model of few layers.
    pub fn inner(&self) -> Range<u32> {
        self.margin..self.n_layer.saturating_sub(self.margin).max(self.margin)
    }

    /// The blocks with boundary layers, ascending; at least one.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}

impl fmt::Display for BoundaryAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        let (margin, n_layer) = (self.margin, self.n_layer);
        f.write_str(if self.blocks.len() == 1 {
            "block "
        } else {
            "blocks "
        })?;
        for (i, block) in self.blocks.iter().take(SHOWN).enumerate() {
            write!(f, "{}`{block}`", if i > 0 { ", " } else { "" })?;
        }
        if self.blocks.len() > SHOWN {
            write!(f, " and {} more", self.blocks.len() - SHOWN)?;
        }
        let verb = if self.blocks.len() == 1 {
            "repeats"
        } else {
            "repeat"
        };
        write!(
            f,
            " {verb} layers among the first or last {margin} of {n_layer}, "
        )?;
        f.write_str("which usually breaks a model: ")?;
        if self.inner().is_empty() {
            return f.write_str("a model of so few layers has no others, compare its answers");
        }
        write!(f, "prefer blocks within `{},{}`", margin, n_layer - margin)
    }
}

pub(crate) fn expand(spec: &Spec, n_layer: u32, n_layer_nextn: u32) -> Result<Plan, PlanError> {
    let error = |kind, at| Err(PlanError::new(kind, spec, at, n_layer, n_layer_nextn));

    if let Some(i) = spec.blocks().iter().position(|b| b.end() > n_layer) {
        let after_nextn = n_layer.saturating_add(n_layer_nextn);
        let nextn = n_layer_nextn > 0 && spec.blocks()[i].start() < after_nextn;
        let kind = if nextn {
            PlanErrorKind::ReachesNextn
        } else {
            PlanErrorKind::OutOfRange
        };
        return error(kind, Some(i));
    }
    // Every block is within n_layer here: no more than twice n_layer passes.
    if u64::from(n_layer) + u64::from(spec.n_repeated()) > u64::from(LLAMA_MAX_LAYERS) {
        return error(PlanErrorKind::TooManyLayers, None);
    }

    let mut src = Vec::new();
    let mut seams = Vec::new();
    let mut eff = 0;
    let mut next = 0;
    for &block in spec.blocks() {
        src.extend(next..block.end());
        src.extend(block.range());
        eff += block.end() - next;
        seams.push(Seam {
            block,
            eff: eff..eff + block.len(),
        });
        eff += block.len();
        next = block.end();
    }
    src.extend(next..n_layer);
    Ok(Plan {
        n_layer,
        src,
        seams,
    })
}
