//! What is compared, and the phases of a run.

use serde::{Deserialize, Serialize};

/// One side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Variant {
    /// Unpatched llama.cpp, the model as it is.
    #[serde(rename = "a")]
    Stock,
    /// This build, the model as it is.
    #[serde(rename = "b")]
    Off,
    /// This build, with the repeats.
    #[serde(rename = "c")]
    Repeats,
    /// Unpatched llama.cpp, the model written with the repeated layers in it.
    #[serde(rename = "d")]
    Expanded,
}

use Variant::{Expanded, Off, Repeats, Stock};

/// Every variant, `a` to `d`.
pub const ALL: [Variant; 4] = [Stock, Off, Repeats, Expanded];

/// The pairs whose quotients are reported, as (over, under).
pub const PAIRS: [(Variant, Variant); 3] = [(Off, Stock), (Repeats, Stock), (Repeats, Expanded)];

impl Variant {
    /// Letter in tables.
    pub fn letter(self) -> char {
        match self {
            Stock => 'a',
            Off => 'b',
            Repeats => 'c',
            Expanded => 'd',
        }
    }

    /// Place in [`ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One value for each phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Phases<T> {
    /// Model and context.
    pub load: T,
    /// The prompt.
    pub prefill: T,
    /// Token by token.
    pub decode: T,
}

impl<T: Copy> Phases<T> {
    /// The same for each phase.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Phases<U> {
        Phases {
            load: f(self.load),
            prefill: f(self.prefill),
            decode: f(self.decode),
        }
    }

    /// Pairs with those of another.
    pub fn zip<U: Copy>(self, other: Phases<U>) -> Phases<(T, U)> {
        Phases {
            load: (self.load, other.load),
            prefill: (self.prefill, other.prefill),
            decode: (self.decode, other.decode),
        }
    }
}

impl<T> Phases<T> {
    /// Load, prefill, decode.
    pub fn each(&self) -> [&T; 3] {
        [&self.load, &self.prefill, &self.decode]
    }
}

impl<T: Copy> Phases<Option<T>> {
    /// `None` if one of them is.
    pub fn all(self) -> Option<Phases<T>> {
        Some(Phases {
            load: self.load?,
            prefill: self.prefill?,
            decode: self.decode?,
        })
    }
}
