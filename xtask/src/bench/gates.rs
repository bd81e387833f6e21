//! What must hold, or the bench fails.

use serde::Serialize;

use super::report::{Ratio, VariantReport};
use super::variant::Variant::{self, Expanded, Off, Repeats, Stock};

/// Largest distance from 1 of instructions b/a.
const OFF_TOLERANCE: f64 = 0.001;
/// Largest distance from 1 of instructions c/d.
const EXPANDED_TOLERANCE: f64 = 0.01;

/// One requirement and what was found.
#[derive(Debug, PartialEq, Serialize)]
pub struct Gate {
    pub requirement: String,
    pub found: String,
    /// `None`: not measured.
    pub passed: Option<bool>,
}

impl Gate {
    fn new(requirement: String, found: Option<(String, bool)>) -> Gate {
        let (found, passed) = found.unzip();
        Gate {
            requirement,
            found: found.unwrap_or_else(|| "not measured".into()),
            passed,
        }
    }

    fn near_one(what: &str, ratio: Option<f64>, tolerance: f64) -> Gate {
        Gate::new(
            format!("{what} within {} % of 1", tolerance * 100.0),
            // A ratio that is no number is no pass.
            ratio.map(|r| (format!("{r:.5}"), (r - 1.0).abs() <= tolerance)),
        )
    }
}

/// Every gate. Loading is reported only: what its many short comparisons of text cost depends
/// on where the text lies in memory, some 0.1 %.
pub fn gates(variants: &[VariantReport; 4], ratios: &[Ratio]) -> Vec<Gate> {
    let of = |v: Variant| &variants[v.index()];
    let mut list = Vec::new();
    for (over, under, tolerance) in [
        (Off, Stock, OFF_TOLERANCE),
        (Repeats, Expanded, EXPANDED_TOLERANCE),
    ] {
        let counts = ratios
            .iter()
            .find(|r| (r.over, r.under) == (over, under))
            .and_then(|r| r.instructions);
        for (phase, ratio) in [
            ("prefill", counts.map(|c| c.prefill)),
            ("decode", counts.map(|c| c.decode)),
        ] {
            let what = format!(
                "instructions {}/{}, {phase},",
                over.letter(),
                under.letter()
            );
            list.push(Gate::near_one(&what, ratio, tolerance));
        }
    }
    let (a, c, d) = (of(Stock), of(Repeats), of(Expanded));
    list.push(Gate::new(
        "weights of c in memory equal to a's".into(),
        Some((
            format!("{} and {} bytes", c.weight_bytes, a.weight_bytes),
            c.weight_bytes == a.weight_bytes,
        )),
    ));
    list.push(Gate::new(
        "peak RSS of c below d's".into(),
        Some((
            format!("{} and {} bytes", c.peak_rss_bytes, d.peak_rss_bytes),
            c.peak_rss_bytes < d.peak_rss_bytes,
        )),
    ));
    for (over, under) in [(Off, Stock), (Repeats, Expanded)] {
        let same = of(over).logits == of(under).logits;
        list.push(Gate::new(
            format!(
                "logits of {} identical to {}'s",
                over.letter(),
                under.letter()
            ),
            Some((if same { "identical" } else { "different" }.into(), same)),
        ));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::variant::{ALL, Phases};

    /// Figures that pass, changed by `change`; the failing gates' requirements must be `want`.
    fn check(change: fn(&mut [VariantReport; 4], &mut Vec<Ratio>), want: &[&str]) {
        let mut variants = ALL.map(|variant| {
            let bytes = 100 + u64::from(variant == Expanded);
            let repeated = matches!(variant, Repeats | Expanded);
            VariantReport {
                variant,
                file_bytes: bytes,
                weight_bytes: bytes,
                cache_bytes: 1,
                compute_bytes: 1,
                peak_rss_bytes: bytes,
                peak_rss_mapped_bytes: None,
                logits: if repeated { "repeated" } else { "plain" }.into(),
                load_ms: None,
                prefill_tokens_per_s: None,
                decode_tokens_per_s: None,
                instructions: None,
            }
        });
        let ratio = |over, under, prefill, decode| Ratio {
            over,
            under,
            instructions: Some(Phases {
                load: 9.0,
                prefill,
                decode,
            }),
            time: None,
        };
        let mut ratios = vec![
            ratio(Off, Stock, 1.0009, 0.9991),
            ratio(Repeats, Stock, 2.0, 2.0),
            ratio(Repeats, Expanded, 1.009, 0.991),
        ];
        change(&mut variants, &mut ratios);
        let gates = gates(&variants, &ratios);
        let failed: Vec<&str> = gates
            .iter()
            .filter(|g| g.passed != Some(true))
            .map(|g| g.requirement.as_str())
            .collect();
        assert_eq!(failed, want);
    }

    fn counts(ratio: &mut Ratio) -> &mut Phases<f64> {
        ratio.instructions.as_mut().expect("counted")
    }

    #[test]
    fn each_gate_can_fail() {
        check(|_, _| (), &[]);
        check(
            |_, r| counts(&mut r[0]).prefill = 1.0011,
            &["instructions b/a, prefill, within 0.1 % of 1"],
        );
        check(
            |_, r| counts(&mut r[0]).decode = 0.9989,
            &["instructions b/a, decode, within 0.1 % of 1"],
        );
        check(
            |_, r| counts(&mut r[2]).prefill = f64::NAN,
            &["instructions c/d, prefill, within 1 % of 1"],
        );
        check(
            |_, r| counts(&mut r[2]).decode = 1.011,
            &["instructions c/d, decode, within 1 % of 1"],
        );
        check(
            |v, _| v[2].weight_bytes += 1,
            &["weights of c in memory equal to a's"],
        );
        // Equal is not below.
        check(
            |v, _| v[2].peak_rss_bytes += 1,
            &["peak RSS of c below d's"],
        );
        check(
            |v, _| v[1].logits = "other".into(),
            &["logits of b identical to a's"],
        );
        check(
            |v, _| v[3].logits = "other".into(),
            &["logits of c identical to d's"],
        );
    }

    #[test]
    fn without_counts_their_gates_are_not_measured() {
        check(
            |_, r| r.iter_mut().for_each(|r| r.instructions = None),
            &[
                "instructions b/a, prefill, within 0.1 % of 1",
                "instructions b/a, decode, within 0.1 % of 1",
                "instructions c/d, prefill, within 1 % of 1",
                "instructions c/d, decode, within 1 % of 1",
            ],
        );
    }
}
