//! The winner so far of one routine, and all candidates that have raced against a winner.

use std::fmt::Debug;

use serde::Serialize;

use crate::log::{Log, LogError, Outcome};
use crate::search::RIVALS;
use crate::search::race::{Raced, Unfinished, Verdict, race};
use crate::search::trial::{Budget, Trial};

/// What can be searched for: parameters with named fields.
pub trait Candidate: Copy + PartialEq + Debug + Serialize {}

impl<P: Copy + PartialEq + Debug + Serialize> Candidate for P {}

/// A candidate that took part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry<P> {
    pub candidate: P,
    /// The median of its timings, in 10^9 operations per second of CPU time.
    pub gflops: f64,
    /// Performance relative to the start, through the races in between, so that changes of the
    /// machine's speed are not in it.
    pub score: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<P> {
    pub candidate: P,
    pub why: String,
}

/// What follows after a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    On,
    /// The time is over.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress<'a> {
    pub routine: &'a str,
    /// The number of candidates so far.
    pub trials: usize,
    /// The winner's performance when it was timed.
    pub gflops: f64,
}

/// What the contests of a search share.
pub struct Ground<'a> {
    pub budget: Budget<'a>,
    /// Earlier results, and the record of new ones.
    pub log: &'a mut Log,
    /// Called for each candidate that took part.
    pub progress: &'a mut dyn FnMut(&Progress),
}

pub struct Contest<'a, 'g, P, T> {
    /// All timed candidates in their order, beginning with the start.
    pub entries: Vec<Entry<P>>,
    pub refused: Vec<Refused<P>>,
    /// How many candidates were already in the log.
    pub resumed: usize,
    routine: &'a str,
    trial: &'a mut T,
    ground: &'a mut Ground<'g>,
    best: usize,
}

impl<'a, 'g, P: Candidate, T: Trial<P>> Contest<'a, 'g, P, T> {
    /// A contest in which no candidate has taken part yet; the routine is named as in the log.
    pub fn new(routine: &'a str, trial: &'a mut T, ground: &'a mut Ground<'g>) -> Self {
        Self {
            entries: Vec::new(),
            refused: Vec::new(),
            resumed: 0,
            routine,
            trial,
            ground,
            best: 0,
        }
    }

    /// The winner so far; `None` before the first candidate that could be timed.
    pub fn winner(&self) -> Option<&Entry<P>> {
        self.entries.get(self.best)
    }

    /// Let several candidates take part, each once; `Over` when the time ends first.
    ///
    /// The first candidate that is not rejected is the start and needs no race. Fails when the log
    /// cannot be written.
    pub fn enter_all(&mut self, candidates: impl IntoIterator<Item = P>) -> Result<Flow, LogError> {
        for candidate in candidates {
            if !self.has_seen(&candidate) && self.enter(candidate)? == Flow::Over {
                return Ok(Flow::Over);
            }
        }
        Ok(Flow::On)
    }

    fn has_seen(&self, candidate: &P) -> bool {
        let timed = self.entries.iter().map(|entry| &entry.candidate);
        let refused = self.refused.iter().map(|entry| &entry.candidate);
        timed.chain(refused).any(|seen| seen == candidate)
    }

    fn enter(&mut self, candidate: P) -> Result<Flow, LogError> {
        let known = self.ground.log.outcome(self.routine, &candidate);
        self.resumed += usize::from(known.is_some());
        let Some(outcome) = self.known_or_timed(self.routine, &candidate, known)? else {
            return Ok(Flow::Over);
        };
        self.take(candidate, outcome);
        Ok(Flow::On)
    }

    /// Let the best rivals race against the winner once more: a disturbance may have decided one of
    /// the many races.
    pub fn rematch(&mut self) -> Result<Flow, LogError> {
        let routine = format!("{} rematch", self.routine);
        for at in self.next_to_winner() {
            let candidate = self.entries[at].candidate;
            let known = self.ground.log.outcome(&routine, &candidate);
            match self.known_or_timed(&routine, &candidate, known)? {
                None => return Ok(Flow::Over),
                Some(Outcome::Raced(raced)) if raced.verdict == Verdict::Better => {
                    self.entries[at].score = raced.ratio * self.entries[self.best].score;
                    self.best = at;
                }
                Some(_) => (),
            }
        }
        Ok(Flow::On)
    }

    fn known_or_timed(
        &mut self,
        routine: &str,
        candidate: &P,
        known: Option<Outcome>,
    ) -> Result<Option<Outcome>, LogError> {
        if known.is_some() {
            return Ok(known);
        }
        let outcome = self.time(candidate);
        if let Some(outcome) = &outcome {
            let log = &mut *self.ground.log;
            log.write_outcome(routine, candidate, outcome)?;
        }
        Ok(outcome)
    }

    /// The candidate's outcome; `None`: the time ends before it is known.
    fn time(&mut self, candidate: &P) -> Option<Outcome> {
        let Some(winner) = self.winner().map(|entry| entry.candidate) else {
            return Some(match self.trial.gflops(candidate) {
                Ok(measured) => Outcome::Raced(Raced::start(measured.gflops_on_cpu)),
                Err(rejected) => Outcome::Rejected(rejected.0),
            });
        };
        match race(self.trial, &self.ground.budget, &winner, candidate) {
            Ok(raced) => Some(Outcome::Raced(raced)),
            Err(Unfinished::Rejected(why)) => Some(Outcome::Rejected(why)),
            Err(Unfinished::Budget) => None,
        }
    }

    fn take(&mut self, candidate: P, outcome: Outcome) {
        match outcome {
            Outcome::Rejected(why) => self.refused.push(Refused { candidate, why }),
            Outcome::Raced(raced) => self.place(candidate, &raced),
        }
        let gflops = self.winner().map_or(0.0, |winner| winner.gflops);
        (self.ground.progress)(&Progress {
            routine: self.routine,
            trials: self.entries.len() + self.refused.len(),
            gflops,
        });
    }

    fn place(&mut self, candidate: P, raced: &Raced) {
        let rival = self.winner().map_or(1.0, |winner| winner.score);
        self.entries.push(Entry {
            candidate,
            gflops: raced.gflops,
            score: raced.ratio * rival,
        });
        if raced.verdict == Verdict::Better {
            self.best = self.entries.len() - 1;
        }
    }

    /// The candidates with the next best scores after the winner, the best first.
    pub fn rivals(&self) -> Vec<P> {
        let next = self.next_to_winner().into_iter();
        next.map(|at| self.entries[at].candidate).collect()
    }

    fn next_to_winner(&self) -> Vec<usize> {
        let others = (0..self.entries.len()).filter(|at| *at != self.best);
        let mut others: Vec<usize> = others.collect();
        let score = |at: &usize| self.entries[*at].score;
        others.sort_by(|a, b| score(b).total_cmp(&score(a)));
        others.truncate(RIVALS);
        others
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::search::trial::{Measured, Rejected};

    /// The second candidate is better, but its first two timings are disturbed.
    struct Disturbed(u32);

    impl Trial<u32> for Disturbed {
        fn gflops(&mut self, candidate: &u32) -> Result<Measured, Rejected> {
            self.0 += candidate - 1;
            let gflops = match (candidate, self.0) {
                (2, ..=2) => 5.0,
                (2, _) => 12.0,
                _ => 10.0,
            };
            Ok(Measured::undisturbed(gflops, 0.0))
        }
    }

    #[test]
    fn a_race_that_a_disturbance_decided_is_decided_again() {
        let clock = || Duration::ZERO;
        let mut told = 0;
        let mut ground = Ground {
            budget: Budget::until(&clock, Duration::from_secs(1)),
            log: &mut Log::none(),
            progress: &mut |progress: &Progress| told = progress.trials,
        };
        let mut trial = Disturbed(0);
        let mut contest = Contest::new("dger", &mut trial, &mut ground);
        assert_eq!(contest.enter_all([1, 2, 1]).unwrap(), Flow::On);
        assert_eq!(contest.winner().unwrap().candidate, 1);
        assert_eq!(contest.rivals(), [2]);
        assert_eq!(contest.rematch().unwrap(), Flow::On);
        let winner = *contest.winner().unwrap();
        assert_eq!((winner.candidate, contest.rivals()), (2, vec![1]));
        assert!((winner.score - 1.2).abs() < 1e-9);
        assert_eq!(told, 2);
    }
}
