//! Measures several candidates side by side after the search.

use crate::search::trial::{Budget, Trial};

/// The measurements of one candidate, or why there are none.
pub type Sample = Result<Vec<f64>, String>;

/// Time all candidates in turns, in as many rounds as there is time for, at most `most`.
///
/// Each round begins with another candidate. Only complete rounds count, so that all samples come
/// from the same time. In the first round, candidates that the time does not reach have empty
/// samples; the first candidate always has one timing.
pub fn in_turns<P>(
    trial: &mut impl Trial<P>,
    budget: &Budget,
    candidates: &[P],
    most: usize,
) -> Vec<Sample> {
    let mut samples: Vec<Sample> = candidates.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..most {
        let before = budget.left();
        let timed = one_round(trial, budget, candidates, &mut samples, round);
        let took = before.saturating_sub(budget.left());
        if timed == 0 || !budget.has(took.as_secs_f64()) {
            break;
        }
    }
    samples
}

/// Give each candidate one timing; returns how many candidates had one.
fn one_round<P>(
    trial: &mut impl Trial<P>,
    budget: &Budget,
    candidates: &[P],
    samples: &mut [Sample],
    round: usize,
) -> usize {
    let mut timed = 0;
    for turn in 0..candidates.len() {
        if round == 0 && timed > 0 && budget.left().is_zero() {
            break;
        }
        let at = (turn + round) % candidates.len();
        let Ok(sample) = &mut samples[at] else {
            continue;
        };
        match trial.gflops(&candidates[at]) {
            Ok(measured) => {
                sample.push(measured.gflops);
                timed += 1;
            }
            Err(rejected) => samples[at] = Err(rejected.0),
        }
    }
    timed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::search::trial::{Measured, Rejected};

    struct Each(Vec<u8>);

    impl Trial<u8> for Each {
        fn gflops(&mut self, candidate: &u8) -> Result<Measured, Rejected> {
            self.0.push(*candidate);
            if *candidate == 7 {
                return Err(Rejected("wrong".into()));
            }
            Ok(Measured::undisturbed(f64::from(*candidate), 1.0))
        }
    }

    #[test]
    fn rounds_begin_with_another_one_and_what_fails_is_left_out() {
        let clock = || Duration::ZERO;
        let budget = Budget::until(&clock, Duration::from_secs(9));
        let mut trial = Each(Vec::new());
        let samples = in_turns(&mut trial, &budget, &[1, 7, 2], 3);
        assert_eq!(trial.0, [1, 7, 2, 2, 1, 2, 1]);
        assert_eq!(
            samples,
            [Ok(vec![1.0; 3]), Err("wrong".into()), Ok(vec![2.0; 3])]
        );
    }

    #[test]
    fn without_time_the_first_one_is_timed_once() {
        let clock = || Duration::from_secs(5);
        let budget = Budget::until(&clock, Duration::from_secs(1));
        let samples = in_turns(&mut Each(Vec::new()), &budget, &[1, 2], 9);
        assert_eq!(samples, [Ok(vec![1.0]), Ok(vec![])]);
    }
}
