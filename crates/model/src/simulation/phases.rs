//! Measuring one phase of a synthetic workload under every fixed mode.

use super::lane::Lane;
use super::sampling::{BATCHES, Sampling};
use super::setup::Setup;
use super::whole::Follower;
use crate::error::ModelError;
use crate::limits::Limits;
use crate::model::address::{Gva, PAGE_SHIFT, Reference};
use crate::model::counters::Counters;
use crate::model::mode::Translating;
use crate::step::{Step, StepSource};
use crate::workload::{Part, Synthetic, Workload};
use vtax_sys::kvm::PagingMode;

/// Student's t for a 95 % interval, by degrees of freedom from 1 on.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Student's t for a 95 % interval of the mean of `count` batches.
fn t_95(count: usize) -> f64 {
    let freedom = count.saturating_sub(1).max(1);
    // Beyond the table this is right to three digits.
    let tail = || 1.960 + 2.4 / freedom as f64;
    T_95.get(freedom - 1).copied().unwrap_or_else(tail)
}

/// Counters of each fixed mode, in the order the modes were asked for.
pub(super) type PerMode = Vec<Counters>;

/// The cost of a phase.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// The cost of entering the phase: mapping and touching its memory, the warm-up, and one more
    /// read of every page, after which the tables of every mode are filled. It is a total, not per
    /// instruction.
    pub(super) entry: PerMode,
    /// Batches of its steady part, per unit of work: an instruction, or an iteration of a repeated
    /// string instruction.
    pub(super) batches: Vec<PerMode>,
    /// How many batches the phase has, measured or not; without it, no end of them.
    pub(super) population: Option<usize>,
    /// Filling the shadow tables again after a switch, in total.
    pub(super) refill: Counters,
}

impl Measured {
    /// Half-width of the 95 % interval of a mode's mean cost beyond the base, relative to it: by batch
    /// means, with Student's t.
    pub(super) fn relative_error(&self, mode: usize) -> f64 {
        let costs: Vec<f64> = self
            .batches
            .iter()
            .map(|batch| batch[mode].cycles.beyond_base())
            .collect();
        let n = costs.len() as f64;
        let mean = costs.iter().sum::<f64>() / n;
        let unmeasured = self
            .population
            .map_or(1.0, |population| (1.0 - n / population as f64).max(0.0));
        if n < 2.0 || mean <= 0.0 {
            return 0.0;
        }
        let variance = costs
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (n - 1.0);
        t_95(self.batches.len()) * (unmeasured * variance / n).sqrt() / mean
    }
}

/// Runs phase `index` alone: enters it, warms up, measures batches, and then measures the cost of a
/// refill.
pub(super) fn measure(
    workload: &Workload,
    index: usize,
    setup: &Setup,
    modes: &[Translating],
    sampling: &Sampling,
) -> Result<Measured, ModelError> {
    let core = setup.core(workload.pages);
    let lane = |mode: &Translating| Lane::fixed(String::new(), &core, *mode);
    let lanes = modes.iter().map(lane).collect::<Result<_, _>>()?;
    let mut follower = Follower::new(setup, lanes, Limits::NONE)?;
    let seed = setup.seed.wrapping_add(index as u64);
    let mut source = Synthetic::new(workload, Part::Phase(index), seed)?;
    while source.entering() {
        follow(&mut source, &mut follower)?;
    }
    // A short phase must not be all warm-up.
    let longest = 0.1 * workload.phase[index].instructions;
    run(
        &mut source,
        &mut follower,
        sampling.warm_instructions.min(longest),
    )?;
    sweep(&source, &mut follower)?;
    let entry = follower.counters();
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let before = follower.counters();
        run(&mut source, &mut follower, sampling.batch_instructions)?;
        let rates = follower
            .counters()
            .into_iter()
            .zip(before)
            .map(|(after, before)| {
                let batch = after - before;
                batch.scaled(1.0 / batch.instructions.max(1.0))
            });
        batches.push(rates.collect());
    }
    let refill = match modes.iter().position(|mode| *mode == Translating::Shadow) {
        Some(shadow) => measure_refill(&source, follower, shadow)?,
        None => Counters::default(),
    };
    Ok(Measured {
        entry,
        batches,
        population: None,
        refill,
    })
}

fn follow(source: &mut Synthetic, follower: &mut Follower) -> Result<f64, ModelError> {
    let Some(step) = source.next_step()? else {
        return Ok(f64::INFINITY);
    };
    let retired = match step {
        Step::References { instructions, .. } => instructions as f64,
        Step::Operation(_) | Step::Phase(_) | Step::Interval { .. } => 0.0,
    };
    follower.step(step)?;
    Ok(retired)
}

fn run(
    source: &mut Synthetic,
    follower: &mut Follower,
    instructions: f64,
) -> Result<(), ModelError> {
    let mut done = 0.0;
    while done < instructions {
        done += follow(source, follower)?;
    }
    Ok(())
}

/// Empties the shadow tables as a switch does and touches the footprint once.
fn measure_refill(
    source: &Synthetic,
    mut follower: Follower,
    shadow: usize,
) -> Result<Counters, ModelError> {
    follower.lanes.swap(0, shadow);
    follower.lanes.truncate(1);
    follower.lanes[0].core.switch(PagingMode::Shadow);
    follower.forget();
    let before = follower.counters()[0];
    sweep(source, &mut follower)?;
    let mut refill = Counters::default();
    let after = follower.counters()[0] - before;
    refill.exits = after.exits;
    refill.cycles.refill = after.cycles.refill;
    Ok(refill)
}

/// Reads each page of the footprint once.
fn sweep(source: &Synthetic, follower: &mut Follower) -> Result<(), ModelError> {
    let (start, bytes) = source.footprint();
    let page = |at: u64| Reference::new(Gva(start.0 + (at << PAGE_SHIFT)), false);
    let pages: Vec<_> = (0..bytes >> PAGE_SHIFT).map(page).collect();
    for references in pages.chunks(4096) {
        follower.step(Step::References {
            references,
            instructions: 0,
            base_cpi: 1.0,
        })?;
    }
    Ok(())
}
