//! The search for the best parameters of a routine.
//!
//! [`Strategy::Lines`] is ATLAS's order: it starts from the model's parameters and varies one
//! parameter after the other, with the others at the best so far (Whaley, Petitet and Dongarra
//! 2001, section 3.3); then the winner's neighbours, until no neighbour is better beyond the noise.
//! A [`race`] decides whether one is. At the end, the nearest rivals race once more.

pub mod contest;
pub mod gemm;
pub mod level2;
pub mod measure;
pub mod race;
#[cfg(test)]
mod synthetic;
pub mod trial;

use crate::log::LogError;
use contest::{Candidate, Contest, Flow, Ground, Refused};
use trial::Trial;

/// The number of rivals that a search reports.
pub const RIVALS: usize = 3;
/// How often the winner's neighbours are tried: the winner moves by one step each time.
const REFINEMENTS: usize = 30;

/// How the candidates are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Line searches, then the winner's neighbours.
    Lines,
    /// Every point of a grid, in an order that covers the grid evenly even when the time ends
    /// early.
    Exhaustive,
}

/// What can be tried.
pub trait Space<P> {
    /// Where to begin: the first candidate that works is the start, and the others race against it.
    fn starts(&self) -> Vec<P>;
    fn lines(&self) -> usize;
    /// The candidates of a line search that begins at this winner.
    fn line(&self, line: usize, winner: &P) -> Vec<P>;
    fn neighbours(&self, winner: &P) -> Vec<P>;
    fn grid(&self) -> Vec<P>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct Found<P> {
    /// The winner; `None`: no candidate works.
    pub winner: Option<P>,
    /// The next best candidates, the best first.
    pub rivals: Vec<P>,
    /// Candidates that were not timed, with the reason.
    pub refused: Vec<Refused<P>>,
    /// Candidates that took part, including rejected ones.
    pub trials: usize,
    /// How many of them were already in the log.
    pub resumed: usize,
    /// Did the search finish in its time?
    pub complete: bool,
}

impl<P> Found<P> {
    /// The result without a search: given parameters.
    pub fn given(winner: P) -> Self {
        Self {
            winner: Some(winner),
            rivals: Vec::new(),
            refused: Vec::new(),
            trials: 0,
            resumed: 0,
            complete: true,
        }
    }
}

/// Search for the best parameters of a routine, which is named as in the log.
///
/// Fails when the log cannot be written.
pub fn search<P: Candidate, T: Trial<P>>(
    routine: &str,
    trial: &mut T,
    ground: &mut Ground,
    space: &impl Space<P>,
    strategy: Strategy,
) -> Result<Found<P>, LogError> {
    let mut contest = Contest::new(routine, trial, ground);
    let flow = match strategy {
        Strategy::Lines => by_lines(&mut contest, space)?,
        Strategy::Exhaustive => exhaustive(&mut contest, space)?,
    };
    Ok(Found {
        winner: contest.winner().map(|entry| entry.candidate),
        rivals: contest.rivals(),
        trials: contest.entries.len() + contest.refused.len(),
        resumed: contest.resumed,
        complete: flow == Flow::On,
        refused: contest.refused,
    })
}

fn by_lines<P: Candidate, T: Trial<P>>(
    contest: &mut Contest<P, T>,
    space: &impl Space<P>,
) -> Result<Flow, LogError> {
    if contest.enter_all(space.starts())? == Flow::Over {
        return Ok(Flow::Over);
    }
    for line in 0..space.lines() {
        let Some(winner) = contest.winner().map(|entry| entry.candidate) else {
            return Ok(Flow::On);
        };
        if contest.enter_all(space.line(line, &winner))? == Flow::Over {
            return Ok(Flow::Over);
        }
    }
    if refine(contest, space)? == Flow::Over || contest.rematch()? == Flow::Over {
        return Ok(Flow::Over);
    }
    refine(contest, space)
}

fn refine<P: Candidate, T: Trial<P>>(
    contest: &mut Contest<P, T>,
    space: &impl Space<P>,
) -> Result<Flow, LogError> {
    let mut before = None;
    for _ in 0..REFINEMENTS {
        let winner = contest.winner().map(|entry| entry.candidate);
        if winner == before {
            break;
        }
        let next = winner.iter().flat_map(|winner| space.neighbours(winner));
        if contest.enter_all(next)? == Flow::Over {
            return Ok(Flow::Over);
        }
        before = winner;
    }
    Ok(Flow::On)
}

fn exhaustive<P: Candidate, T: Trial<P>>(
    contest: &mut Contest<P, T>,
    space: &impl Space<P>,
) -> Result<Flow, LogError> {
    let grid = space.grid();
    let mixed = mixed(grid.len()).map(|at| grid[at]);
    let all = space.starts().into_iter().chain(mixed);
    if contest.enter_all(all)? == Flow::Over {
        return Ok(Flow::Over);
    }
    contest.rematch()
}

/// Every index once, in steps of about the golden section of the length: any first part of the
/// indices is spread evenly (Knuth, The Art of Computer Programming 3, 6.4).
fn mixed(length: usize) -> impl Iterator<Item = usize> {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = length * 618 / 1000;
    let step = (golden.max(1)..=length).find(|step| gcd(*step, length) == 1);
    let step = step.unwrap_or(1);
    (0..length).scan(0, move |at, _| {
        let here = *at;
        *at = (*at + step) % length;
        Some(here)
    })
}
