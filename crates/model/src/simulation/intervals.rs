//! Simulating a trace that has the references of some intervals only.
//!
//! What operations cost (writes of page tables, loads of CR3, faults) is followed in every interval.
//! What references cost is measured in each recorded interval that follows another, which has filled
//! TLBs and caches, and estimated for all others from intervals with similar code: a stratified
//! sample, with an interval of the run as unit.

use super::lane::Lane;
use super::oracle::refill_bound;
use super::outcome::{Outcome, Progress};
use super::phases::{Measured, PerMode};
use super::replay::Course;
use super::sampled::{modes, outcomes};
use super::setup::{Choice, Setup};
use super::strata::{Shares, shares, strata};
use super::timeline::Segment;
use super::whole::{BLOCKS_PER_REPORT, Follower};
use crate::error::ModelError;
use crate::limits::Limits;
use crate::model::address::Gva;
use crate::model::counters::{Counters, Exit};
use crate::model::mode::Translating;
use crate::step::{Operation, Step, StepSource};

/// An interval that has ended.
struct Interval {
    instructions: f64,
    /// What operations cost in it.
    operations: PerMode,
    /// Instructions and iterations of repeated string instructions.
    work: f64,
    /// What references cost, per unit of work, where it was measured.
    rates: Option<PerMode>,
    shares: Shares,
}

/// Simulates `source`, of which intervals of `length` instructions were recorded or only counted.
///
/// # Errors
/// As [`super::simulate`], and when fewer than two intervals could be measured.
pub(super) fn simulate(
    source: &mut dyn StepSource,
    length: u64,
    setup: &Setup,
    choices: Vec<(String, Choice)>,
    progress: Progress<'_>,
) -> Result<Outcome, ModelError> {
    let modes = modes(&choices);
    let mut run = Run::new(setup, &modes, source.limits(), length)?;
    let (mut steps, mut stopped) = (0_u32, false);
    let limit = setup.instruction_limit.unwrap_or(f64::INFINITY);
    while let Some(step) = source.next_step()? {
        run.step(step)?;
        steps += 1;
        stopped = steps.is_multiple_of(BLOCKS_PER_REPORT) && progress(run.done).is_break();
        if stopped || run.done >= limit {
            break;
        }
    }
    let refill = run.refill(setup);
    let (segments, measured) =
        run.estimate(length.max(setup.window_instructions) as f64, refill)?;
    let course = Course {
        setup,
        segments: &segments,
        measured: &measured,
        modes: &modes,
    };
    outcomes(&course, choices, stopped)
}

struct Run {
    follower: Follower,
    limits: Limits,
    length: u64,
    done: f64,
    instructions: f64,
    operations: PerMode,
    /// Counters at the interval's beginning.
    begin: PerMode,
    /// Was the interval before recorded?
    warm: bool,
    /// The last address that faulted, until it is mapped.
    faulted: Option<Gva>,
    intervals: Vec<Interval>,
}

impl Run {
    fn new(
        setup: &Setup,
        modes: &[Translating],
        limits: Limits,
        length: u64,
    ) -> Result<Self, ModelError> {
        let core = setup.core(setup.guest_page);
        let lane = |mode: &Translating| Lane::fixed(String::new(), &core, *mode);
        let lanes = modes.iter().map(lane).collect::<Result<_, _>>()?;
        Ok(Self {
            follower: Follower::new(setup, lanes, limits)?,
            limits,
            length,
            done: 0.0,
            instructions: 0.0,
            operations: vec![Counters::default(); modes.len()],
            begin: vec![Counters::default(); modes.len()],
            warm: false,
            faulted: None,
            intervals: Vec::new(),
        })
    }

    fn step(&mut self, step: Step<'_>) -> Result<(), ModelError> {
        match step {
            Step::References { instructions, .. } => {
                self.follower.step(step)?;
                self.done += instructions as f64;
                self.instructions += instructions as f64;
                Ok(())
            }
            Step::Operation(operation) => self.operation(operation),
            Step::Interval { recorded, blocks } => self.end(recorded, blocks),
            Step::Phase(_) => Ok(()),
        }
    }

    fn operation(&mut self, operation: Operation) -> Result<(), ModelError> {
        let before = self.follower.counters();
        self.follower.step(Step::Operation(operation))?;
        match operation {
            Operation::Fault { address } => self.faulted = Some(address),
            // The faulting instruction runs again when its page is mapped. That reference is not
            // recorded in every interval, but it is known: so it counts as the operation's.
            Operation::Entry { written: true, .. } => {
                if let Some(address) = self.faulted
                    && self.follower.touch(address)?
                {
                    self.faulted = None;
                }
            }
            _ => {}
        }
        for ((sum, after), before) in self
            .operations
            .iter_mut()
            .zip(self.follower.counters())
            .zip(before)
        {
            *sum = *sum + (after - before);
        }
        Ok(())
    }

    fn end(&mut self, recorded: bool, blocks: &[u64]) -> Result<(), ModelError> {
        let rows = (self.intervals.len() + 1).saturating_mul(self.operations.len());
        Limits::check(rows, self.limits.rows, "intervals in all modes")?;
        let none = vec![Counters::default(); self.operations.len()];
        let operations = std::mem::replace(&mut self.operations, none);
        let now = self.follower.counters();
        let begin = std::mem::replace(&mut self.begin, now);
        let instructions = std::mem::take(&mut self.instructions);
        // A trace without block vectors has counted instructions only.
        let work = (blocks.iter().sum::<u64>() as f64).max(instructions);
        // The run's last interval may end early.
        let long = work >= self.length as f64 / 2.0;
        let measured = recorded && self.warm && long;
        self.warm = recorded;
        let rates = measured.then(|| {
            let counted = self.begin.iter().zip(begin).zip(&operations);
            let cost = counted.map(|((now, begin), operations)| *now - begin - *operations);
            cost.map(|cost| cost.scaled(1.0 / work.max(1.0))).collect()
        });
        let elements = self
            .intervals
            .first()
            .map_or(blocks.len(), |first| first.shares.len());
        self.intervals.push(Interval {
            instructions,
            work,
            operations,
            rates,
            shares: shares(blocks, elements),
        });
        Ok(())
    }

    /// What it takes to fill the shadow tables again.
    fn refill(&self, setup: &Setup) -> Counters {
        let cycles = refill_bound(setup, self.follower.guest.resident_pages());
        let costs = &setup.machine.costs;
        let mut refill = Counters::default();
        refill.exits[Exit::ShadowFill as usize] =
            cycles / f64::from(costs.exit + costs.shadow_fill);
        refill.cycles.refill = cycles;
        refill
    }

    /// The run's intervals with the strata that they belong to, and the strata's samples.
    fn estimate(
        self,
        window: f64,
        refill: Counters,
    ) -> Result<(Vec<Segment>, Vec<Option<Measured>>), ModelError> {
        let sampled: Vec<bool> = self
            .intervals
            .iter()
            .map(|each| each.rates.is_some())
            .collect();
        let count = sampled.iter().filter(|each| **each).count();
        if count < 2 {
            return Err(ModelError::Source(format!(
                "{count} of {} intervals were measured; an estimate needs two or more: record \
                 more often, or everything",
                sampled.len()
            )));
        }
        let vectors: Vec<Shares> = self
            .intervals
            .iter()
            .map(|each| each.shares.clone())
            .collect();
        let strata = strata(&vectors, &sampled);
        let modes = self.operations.len();
        let fresh = || Measured {
            entry: vec![Counters::default(); modes],
            batches: Vec::new(),
            population: Some(0),
            refill,
        };
        let mut measured: Vec<Measured> = Vec::new();
        measured.resize_with(strata.iter().max().map_or(0, |last| last + 1), fresh);
        let mut turns = vec![0; measured.len()];
        let (mut segments, mut at, mut next, mut number) = (Vec::new(), 0.0, window, 0);
        for (interval, stratum) in self.intervals.into_iter().zip(strata) {
            if at >= next {
                (number, next) = (number + 1, next + window);
            }
            at += interval.instructions;
            measured[stratum].batches.extend(interval.rates);
            segments.push(Segment {
                phase: stratum,
                window: number,
                instructions: interval.instructions,
                work: interval.work / interval.instructions.max(1.0),
                batch: turns[stratum],
                entry: 0.0,
                own: interval.operations,
            });
            turns[stratum] += 1;
        }
        for (stratum, intervals) in measured.iter_mut().zip(turns) {
            stratum.population = Some(intervals);
        }
        Ok((segments, measured.into_iter().map(Some).collect()))
    }
}
