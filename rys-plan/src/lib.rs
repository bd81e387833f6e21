//! Which layers of a model to run twice, and what that costs.
//!
//! RYS ("Repeat Your Self") runs a block of a model's middle layers a second time with the same
//! weights. A [`Spec`] says which blocks, a [`Plan`] is the order of layers it gives for one model,
//! and [`cost`] the memory it takes. This crate reads no files and calls no llama.cpp.
//!
//! ```
//! use rys_plan::Spec;
//!
//! let spec: Spec = "26,34".parse()?;
//! let plan = spec.plan(64, 0)?; // 64 layers, no MTP layers
//! assert_eq!((plan.n_layer(), plan.n_layer_eff()), (64, 72));
//! assert_eq!(plan.to_string(), "0..=33 | 26..=33 | 34..=63");
//! assert_eq!(plan.seams()[0].eff, 34..42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Grammar
//!
//! ```text
//! spec  = ["blocks:"] block *( (";" / "+") block )
//! block = range / "(" range ")"
//! range = index ( "," / "-" ) index
//! index = 1*DIGIT                      ; decimal, at most 2147483647
//! ```
//!
//! Spaces may stand around every token. A block `start,end` is half-open and zero-based: it repeats
//! `start` to `end - 1` right after their first pass. Blocks are sorted, and may touch but not
//! overlap. Blocks that touch are repeated one by one: `26,30;30,34` is not `26,34`.
//!
//! | write | where |
//! |---|---|
//! | `28,34;43,45` | the canonical form, in documents and logs |
//! | `28-34+43-45` | where `;` ends a value or `,` splits it ([`Spec::portable`]) |
//!
//! ```
//! use rys_plan::{Spec, SpecErrorKind::*};
//!
//! let accepted = [
//!     // spec                     canonical       n_layer_eff of 64 layers
//!     ("33,34",                   "33,34",        65),
//!     ("26-34",                   "26,34",        72),
//!     ("(26, 34)",                "26,34",        72),
//!     ("  ( 026 -034 ) ",         "26,34",        72),
//!     ("blocks:31,34;43,45",      "31,34;43,45",  69),
//!     ("43,45;28,34",             "28,34;43,45",  72),
//!     ("43-45+28-34",             "28,34;43,45",  72),
//!     ("26,30;30,34",             "26,30;30,34",  72),
//!     ("0,64",                    "0,64",         128),
//! ];
//! for (text, canonical, n_layer_eff) in accepted {
//!     let spec: Spec = text.parse()?;
//!     assert_eq!(spec.to_string(), canonical);
//!     assert_eq!(spec.plan(64, 0)?.n_layer_eff(), n_layer_eff);
//! }
//!
//! let refused = [
//!     // spec                     kind              bytes at fault
//!     ("",                        Empty,            0..0),
//!     ("26",                      MissingIndex,     2..2),
//!     ("26,",                     MissingIndex,     3..3),
//!     (",34",                     MissingIndex,     0..1),
//!     ("26,34,40",                ExtraIndex,       5..6),
//!     ("a,34",                    NotANumber,       0..1),
//!     ("-1,3",                    Negative,         0..2),
//!     ("99999999999,3",           TooLarge,         0..11),
//!     ("26 34",                   BadSeparator,     3..5),
//!     ("26..34",                  RangeDots,        2..4),
//!     ("(26,34",                  UnbalancedParen,  0..1),
//!     ("26,34;",                  EmptyBlock,       5..6),
//!     ("34,26",                   NotAscending,     0..5),
//!     ("33,33",                   NotAscending,     0..5),
//!     ("0,0",                     ZeroBlock,        0..3),
//!     ("26,34x",                  TrailingGarbage,  5..6),
//!     ("26,34 43,45",             TrailingGarbage,  6..8),
//!     ("layers:0,1,2,1,2",        OtherForm,        0..7),
//!     ("26,34;30,40",             Overlap,          6..11),
//! ];
//! for (text, kind, span) in refused {
//!     let error = text.parse::<Spec>().unwrap_err();
//!     assert_eq!((error.kind(), error.span()), (kind, span), "{error:#}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cost;
mod excerpt;
mod parse;
mod plan;
mod plan_error;
mod spec;
mod spec_error;

pub use plan::{BoundaryAdvice, Plan, Seam};
pub use plan_error::{PlanError, PlanErrorKind};
pub use spec::{Block, Spec};
pub use spec_error::{SpecError, SpecErrorKind};

/// The most passes a plan can have, llama.cpp's limit of the same name.
pub const LLAMA_MAX_LAYERS: u32 = 512;
