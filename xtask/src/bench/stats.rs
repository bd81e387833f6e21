//! Medians and their confidence intervals.

use serde::Serialize;

/// Widest interval, relative to the median, of a converged estimate.
pub const MAX_WIDTH: f64 = 0.03;
/// Chance that the interval may miss the true median.
const ALPHA: f64 = 0.05;

/// A median with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    pub median: f64,
    /// Both ends of the interval; absent with less than 6 values.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let median = (sorted.get(n.checked_sub(1)? / 2)? + sorted.get(n / 2)?) / 2.0;
        let interval = rank(n).map(|k| [sorted[k], sorted[n - 1 - k]]);
        Some(Estimate { median, interval })
    }

    /// Width of the interval relative to the median.
    pub fn width(&self) -> Option<f64> {
        self.interval.map(|[low, high]| (high - low) / self.median)
    }

    /// Whether the interval is narrow enough.
    pub fn converged(&self) -> bool {
        self.width().is_some_and(|w| w <= MAX_WIDTH)
    }
}

/// Zero-based rank of the lower end among `n` sorted values; the upper end is as far from the
/// other side. It rests on ranks alone: each value is below the median with chance 1/2, so
/// the number below is binomial, whatever the distribution.
fn rank(n: usize) -> Option<usize> {
    let mut k = None;
    let mut term = 0.5f64.powi(i32::try_from(n).ok()?);
    let mut below = 0.0;
    for i in 0..n / 2 {
        below += term;
        if 2.0 * below > ALPHA {
            break;
        }
        k = Some(i);
        term *= (n - i) as f64 / (i + 1) as f64;
    }
    k
}

/// Quotients of values measured in the same round.
pub fn quotients(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(o, u)| o / u).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], median: f64, interval: Option<[f64; 2]>) {
        let want = Estimate { median, interval };
        assert_eq!(Estimate::of(values), Some(want), "{values:?}");
        let mut reversed = values.to_vec();
        reversed.reverse();
        assert_eq!(Estimate::of(&reversed), Some(want), "{reversed:?}");
    }

    #[test]
    fn medians() {
        assert_eq!(Estimate::of(&[]), None);
        check(&[2.0], 2.0, None);
        check(&[1.0, 2.0], 1.5, None);
        check(&[1.0, 2.0, 9.0], 2.0, None);
        check(&[1.0, 2.0, 4.0, 9.0], 3.0, None);
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 3.0, None);
        check(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3.5, Some([1.0, 6.0]));
    }

    /// Against the table of the sign test at 5 %, two-sided: the rank is that of the table
    /// for `n` values, counted from zero.
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        let table = [
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (11, Some(1)),
            (12, Some(2)),
            (15, Some(3)),
            (20, Some(5)),
            (25, Some(7)),
            (30, Some(9)),
            (40, Some(13)),
        ];
        for (n, want) in table {
            assert_eq!(rank(n), want, "{n} values");
        }
    }

    #[test]
    fn convergence_is_the_width_of_the_interval() {
        let estimate = |low, high| Estimate {
            median: 100.0,
            interval: Some([low, high]),
        };
        assert!(estimate(99.0, 102.0).converged());
        assert!(!estimate(99.0, 102.5).converged());
        let none = Estimate {
            median: 100.0,
            interval: None,
        };
        assert!(!none.converged());
        // One outlier among ten does not widen it.
        let mut values = vec![100.0; 9];
        values.push(900.0);
        assert!(Estimate::of(&values).is_some_and(|e| e.converged()));
    }

    #[test]
    fn quotients_pair_rounds() {
        assert_eq!(quotients(&[2.0, 9.0], &[1.0, 3.0]), [2.0, 3.0]);
    }
}
