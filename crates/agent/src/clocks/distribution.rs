//! The summary of a sample.

use serde::Serialize;

/// Order statistics of a sample: each value is one of the sample's (nearest rank).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Distribution {
    pub min: f64,
    /// A quarter of the sample is at most this.
    #[serde(skip)]
    pub p25: f64,
    /// Half of the sample is at most this.
    pub median: f64,
    /// Three quarters of the sample are at most this.
    #[serde(skip)]
    pub p75: f64,
    /// 90 % of the sample are at most this.
    pub p90: f64,
    /// 99 % of the sample are at most this.
    pub p99: f64,
    pub max: f64,
    pub n: usize,
}

impl Distribution {
    /// Summarize finite numbers; `None` when there are none.
    pub fn of(mut sample: Vec<f64>) -> Option<Self> {
        sample.sort_by(f64::total_cmp);
        let n = sample.len();
        let at = |percent: usize| sample.get((n * percent).div_ceil(100).max(1) - 1).copied();
        Some(Self {
            min: at(0)?,
            p25: at(25)?,
            median: at(50)?,
            p75: at(75)?,
            p90: at(90)?,
            p99: at(99)?,
            max: at(100)?,
            n,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_a_hundred() {
        let found = Distribution::of((1..=100).rev().map(f64::from).collect());
        let expected = Distribution {
            min: 1.0,
            p25: 25.0,
            median: 50.0,
            p75: 75.0,
            p90: 90.0,
            p99: 99.0,
            max: 100.0,
            n: 100,
        };
        assert_eq!(found, Some(expected));
        assert_eq!(Distribution::of(Vec::new()), None);
    }

    proptest! {
        #[test]
        fn each_quantile_has_its_share_below_it(
            sample in prop::collection::vec(-1e9..1e9, 1..300)
        ) {
            let found = Distribution::of(sample.clone()).unwrap();
            let quarters = [(found.p25, 25), (found.median, 50), (found.p75, 75)];
            for (value, percent) in quarters.into_iter().chain([(found.p90, 90), (found.p99, 99)]) {
                let below = sample.iter().filter(|other| **other < value).count();
                let not_above = sample.iter().filter(|other| **other <= value).count();
                prop_assert!(not_above * 100 >= sample.len() * percent);
                prop_assert!(below * 100 < sample.len() * percent);
            }
            prop_assert!(sample.iter().all(|one| (found.min..=found.max).contains(one)));
        }
    }
}
