//! Decides whether a candidate is better than the winner so far, beyond the noise.
//!
//! Both are timed in turns, one pair after the other, so that a change of the machine's speed
//! affects both; on one thread the CPU time counts. A pair is won by the candidate when it is
//! faster by more than [`GAIN`]. The candidate replaces the winner as soon as it has won N
//! pairs, where a candidate without an advantage would win N with a chance below 5 % (sign test: 5
//! of 5, 7 of 8, 9 of 11, 10 of 13, 12 of 16). It is out when it cannot reach that any more, and
//! when it has lost two pairs more than it has won. A candidate below [`CLEARLY`] of the winner in
//! its first pair is timed once more, because a disturbance only slows; it is out when it is below
//! again, after three timings.

use serde::{Deserialize, Serialize};

use crate::search::trial::{Budget, Rejected, Trial};
use crate::statistics::median;

/// How much faster a candidate must be to win a pair: less is not worth another kernel.
pub const GAIN: f64 = 0.003;
/// Below this share of the winner's performance a candidate is out at once.
pub const CLEARLY: f64 = 0.93;
/// Numbers of pairs, and of losses among them, that still show an advantage.
const ENOUGH: [(u32, u32); 5] = [(5, 0), (8, 1), (11, 2), (13, 3), (16, 4)];
/// Losses after which an advantage cannot be shown any more: in all, and more than wins.
const TOO_MANY: u32 = 5;
const TOO_FAR: u32 = 2;

/// How a race ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate is better beyond the noise.
    Better,
    /// It was not shown that the candidate is better.
    NotBetter,
    /// The candidate is clearly slower.
    Slower,
}

/// A race and its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Raced {
    pub verdict: Verdict,
    /// The candidate's median.
    pub gflops: f64,
    /// The number of the candidate's timings.
    pub runs: u32,
    /// The candidate's performance divided by the winner's, the median over the pairs.
    pub ratio: f64,
}

impl Raced {
    /// The first candidate, which has no winner to race against.
    pub fn start(gflops: f64) -> Self {
        raced(Verdict::Better, &[gflops], &[1.0])
    }
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    /// The time is over.
    Budget,
    /// The candidate takes no part.
    Rejected(String),
}

impl From<Rejected> for Unfinished {
    fn from(Rejected(why): Rejected) -> Self {
        Self::Rejected(why)
    }
}

/// Race a candidate against the winner.
///
/// Fails when the candidate is rejected, and when the budget ends before the race.
pub fn race<P: Copy>(
    trial: &mut impl Trial<P>,
    budget: &Budget,
    winner: &P,
    candidate: &P,
) -> Result<Raced, Unfinished> {
    let mut run = Run::new(trial, budget);
    let (first, champion) = (run.time(candidate)?, run.time(winner)?);
    let slow = |gflops: f64| gflops < CLEARLY * champion;
    if slow(first) {
        let again = run.time(candidate)?;
        if slow(again) {
            let best = first.max(again);
            return Ok(raced(Verdict::Slower, &[first, again], &[best / champion]));
        }
        // The first timing was disturbed.
        return pairs(&mut run, winner, candidate, (again, champion));
    }
    pairs(&mut run, winner, candidate, (first, champion))
}

fn pairs<P: Copy, T: Trial<P>>(
    run: &mut Run<T>,
    winner: &P,
    candidate: &P,
    first: (f64, f64),
) -> Result<Raced, Unfinished> {
    let (mut own, mut ratios) = (vec![first.0], vec![first.0 / first.1]);
    loop {
        if let Some(verdict) = decide(&ratios) {
            return Ok(raced(verdict, &own, &ratios));
        }
        // The one that was second goes first, so that neither is always behind the other.
        let (mine, other) = if ratios.len() % 2 == 1 {
            let other = run.time(winner)?;
            (run.time(candidate)?, other)
        } else {
            let mine = run.time(candidate)?;
            (mine, run.time(winner)?)
        };
        own.push(mine);
        ratios.push(mine / other);
    }
}

fn decide(ratios: &[f64]) -> Option<Verdict> {
    let all = u32::try_from(ratios.len()).unwrap_or(u32::MAX);
    let won = ratios.iter().filter(|ratio| **ratio > 1.0 + GAIN).count();
    let won = u32::try_from(won).unwrap_or(u32::MAX);
    let lost = all.saturating_sub(won);
    if lost >= TOO_MANY || lost >= won + TOO_FAR {
        return Some(Verdict::NotBetter);
    }
    let shown = ENOUGH.contains(&(all, lost));
    shown.then_some(Verdict::Better)
}

fn raced(verdict: Verdict, own: &[f64], ratios: &[f64]) -> Raced {
    Raced {
        verdict,
        gflops: median(own.to_vec()).unwrap_or_default(),
        runs: u32::try_from(own.len()).unwrap_or(u32::MAX),
        ratio: median(ratios.to_vec()).unwrap_or_default(),
    }
}

/// Timings within a budget.
struct Run<'a, 'b, T> {
    trial: &'a mut T,
    budget: &'a Budget<'b>,
    longest: f64,
}

impl<'a, 'b, T> Run<'a, 'b, T> {
    fn new(trial: &'a mut T, budget: &'a Budget<'b>) -> Self {
        Self {
            trial,
            budget,
            longest: 0.0,
        }
    }

    fn time<P>(&mut self, candidate: &P) -> Result<f64, Unfinished>
    where
        T: Trial<P>,
    {
        if !self.budget.has(self.longest) {
            return Err(Unfinished::Budget);
        }
        let measured = self.trial.gflops(candidate)?;
        self.longest = self.longest.max(measured.seconds);
        Ok(measured.gflops_on_cpu)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::search::trial::Measured;

    /// Gives the timings of candidate 1 and winner 0 in the order of the lists.
    struct Listed(Vec<f64>, Vec<f64>);

    impl Trial<u8> for Listed {
        fn gflops(&mut self, candidate: &u8) -> Result<Measured, Rejected> {
            let list = if *candidate == 1 {
                &mut self.0
            } else {
                &mut self.1
            };
            if list.is_empty() {
                return Err(Rejected("no more timings".into()));
            }
            Ok(Measured::undisturbed(list.remove(0), 0.0))
        }
    }

    fn run(candidate: &[f64], winner: &[f64]) -> Result<Raced, Unfinished> {
        let clock = || Duration::ZERO;
        let budget = Budget::until(&clock, Duration::from_secs(1));
        race(
            &mut Listed(candidate.to_vec(), winner.to_vec()),
            &budget,
            &0,
            &1,
        )
    }

    #[test]
    fn five_wins_of_five_decide() {
        let raced = run(&[11.0; 5], &[10.0; 5]).unwrap();
        assert_eq!((raced.verdict, raced.runs), (Verdict::Better, 5));
        assert!((raced.ratio - 1.1).abs() < 1e-9);
    }

    #[test]
    fn one_loss_needs_seven_wins_and_two_need_nine() {
        let mut own = [11.0; 8];
        own[3] = 9.9;
        assert_eq!(run(&own, &[10.0; 8]).unwrap().verdict, Verdict::Better);
        let short = run(&own[..7], &[10.0; 8]).unwrap_err();
        assert_eq!(short, Unfinished::Rejected("no more timings".into()));
        let mut own = [11.0; 11];
        (own[3], own[5]) = (9.9, 9.9);
        let raced = run(&own, &[10.0; 11]).unwrap();
        assert_eq!((raced.verdict, raced.runs), (Verdict::Better, 11));
    }

    #[test]
    fn a_gain_within_the_least_gain_is_none() {
        let raced = run(&[10.02; 3], &[10.0; 3]).unwrap();
        assert_eq!((raced.verdict, raced.runs), (Verdict::NotBetter, 2));
    }

    #[test]
    fn a_clearly_slower_one_is_timed_twice_and_the_winner_once() {
        let raced = run(&[5.0, 6.0], &[10.0]).unwrap();
        assert_eq!((raced.verdict, raced.runs), (Verdict::Slower, 2));
        assert!((raced.ratio - 0.6).abs() < 1e-9);
    }

    #[test]
    fn one_disturbed_timing_does_not_end_a_better_one() {
        let own = [2.0, 11.0, 11.0, 11.0, 11.0, 11.0];
        assert_eq!(run(&own, &[10.0; 5]).unwrap().verdict, Verdict::Better);
    }

    #[test]
    fn one_that_is_even_is_out_after_five_losses_or_two_in_a_row() {
        let own = [10.5, 9.5, 10.5, 9.5, 10.5, 9.5, 10.5, 9.5, 10.5, 9.5];
        let raced = run(&own, &[10.0; 10]).unwrap();
        assert_eq!((raced.verdict, raced.runs), (Verdict::NotBetter, 10));
        let raced = run(&[10.0; 2], &[10.0; 2]).unwrap();
        assert_eq!((raced.verdict, raced.runs), (Verdict::NotBetter, 2));
    }

    #[test]
    fn no_timing_begins_that_would_end_too_late() {
        struct Slow(u32);
        impl Trial<u8> for Slow {
            fn gflops(&mut self, _: &u8) -> Result<Measured, Rejected> {
                self.0 += 1;
                Ok(Measured::undisturbed(10.0, 2.0))
            }
        }
        let mut slow = Slow(0);
        let clock = || Duration::ZERO;
        let budget = Budget::until(&clock, Duration::from_secs(1));
        let ended = race(&mut slow, &budget, &0, &1).unwrap_err();
        assert_eq!((ended, slow.0), (Unfinished::Budget, 1));
    }
}
