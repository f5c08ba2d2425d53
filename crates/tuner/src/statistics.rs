//! The median of a quantity's runs, and its uncertainty.

use serde::Serialize;

/// The least number of runs for a 95 % interval of the median: with 6 runs, 2 x 0.5^6 = 3.1 % are
/// outside.
pub const FEWEST: usize = 6;

/// A median with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    pub runs: usize,
}

impl Interval {
    /// The interval of finite numbers by order statistics, without an assumption about the
    /// distribution.
    ///
    /// The ranks are the narrowest symmetric ones that cover 95 % by the binomial distribution
    /// (Conover, Practical Nonparametric Statistics, 3.2): 6 and 15 of 20 runs. The error says
    /// that there are too few runs.
    pub fn of(mut sample: Vec<f64>) -> Result<Self, String> {
        sample.sort_by(f64::total_cmp);
        let runs = sample.len();
        if runs < FEWEST {
            return Err(format!("only {runs} runs in the time given"));
        }
        let below = outside(runs);
        Ok(Self {
            value: median_of_sorted(&sample),
            low: sample[below],
            high: sample[runs - 1 - below],
            runs,
        })
    }

    /// The interval in another unit; the conversion must not reverse the order.
    #[must_use]
    pub fn scaled(self, by: impl Fn(f64) -> f64) -> Self {
        Self {
            value: by(self.value),
            low: by(self.low),
            high: by(self.high),
            runs: self.runs,
        }
    }
}

/// The performance of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The median, in 10^9 floating-point operations per second.
    pub gflops: f64,
    /// The 95 % interval of the median; `None` for fewer than [`FEWEST`] runs.
    pub low: Option<f64>,
    /// The upper end of the interval.
    pub high: Option<f64>,
    pub runs: usize,
}

impl Spread {
    /// The performance of these runs; `None` without runs.
    pub fn of(sample: &[f64]) -> Option<Self> {
        let interval = Interval::of(sample.to_vec()).ok();
        Some(Self {
            gflops: median(sample.to_vec())?,
            low: interval.map(|found| found.low),
            high: interval.map(|found| found.high),
            runs: sample.len(),
        })
    }
}

/// The median; `None` for an empty sample.
pub fn median(mut sample: Vec<f64>) -> Option<f64> {
    sample.sort_by(f64::total_cmp);
    (!sample.is_empty()).then(|| median_of_sorted(&sample))
}

fn median_of_sorted(sample: &[f64]) -> f64 {
    let half = sample.len() / 2;
    if sample.len() % 2 == 1 {
        sample[half]
    } else {
        f64::midpoint(sample[half - 1], sample[half])
    }
}

/// How many of the smallest values lie below the interval; the same number lies above.
fn outside(runs: usize) -> usize {
    const EACH_SIDE: f64 = 0.025;
    let half = 0.5_f64;
    let mut term = half.powi(i32::try_from(runs).unwrap_or(i32::MAX));
    let (mut below, mut tail) = (0_usize, term);
    while tail <= EACH_SIDE && below < runs / 2 {
        let (all, taken) = (count(runs), count(below));
        term *= (all - taken) / (taken + 1.0);
        tail += term;
        below += 1;
    }
    below.saturating_sub(1)
}

#[allow(clippy::cast_precision_loss, reason = "a number of runs")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranks_of_the_table_of_the_binomial_distribution() {
        // The 1-based rank of the lower end, minus one.
        for (runs, below) in [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (30, 9)] {
            assert_eq!(outside(runs), below, "{runs}");
        }
    }

    #[test]
    fn of_twenty_runs() {
        let found = Interval::of((1..=20).rev().map(f64::from).collect()).unwrap();
        let expected = Interval {
            value: 10.5,
            low: 6.0,
            high: 15.0,
            runs: 20,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn few_runs_have_no_interval() {
        let reason = Interval::of(vec![1.0; 5]).unwrap_err();
        assert!(reason.contains("only 5 runs"), "{reason}");
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.gflops, spread.low, spread.runs), (2.0, None, 3));
        assert_eq!(Spread::of(&[1.0; 6]).unwrap().high, Some(1.0));
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    }

    proptest! {
        #[test]
        fn the_median_is_in_the_interval_and_that_in_the_sample(
            sample in prop::collection::vec(0.1..1e9, FEWEST..100)
        ) {
            let found = Interval::of(sample.clone()).unwrap();
            prop_assert!(found.low <= found.value && found.value <= found.high);
            prop_assert!(sample.contains(&found.low) && sample.contains(&found.high));
        }
    }
}
