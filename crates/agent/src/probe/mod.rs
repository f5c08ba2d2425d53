//! What the processor and its memory are: `vtax-agent probe`.
//!
//! Each quantity is measured in many runs and stands beside what CPUID and the kernel claim of it;
//! a quantity that could not be measured is null with a reason. docs/tune.md describes the
//! quantities. Each stage has a part of the time, and ends when that part is over.

pub(crate) mod arena;
mod associativity;
pub(crate) mod bandwidth;
mod caches;
mod claims;
pub mod cli;
mod curve;
mod edges;
mod floating;
pub(crate) mod meter;
pub(crate) mod quantity;
pub(crate) mod registers;
pub(crate) mod shuffle;
mod stages;
mod table;
mod tlb;
pub(crate) mod unsafe_cycle;

use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use vtax_sys::calls::processor::COUNTER;
use vtax_sys::pinning::stay_on_last;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::VERSION;
use crate::probe::claims::Claims;
use crate::probe::curve::Point;
use crate::probe::meter::{Budget, Meter};
use crate::probe::quantity::Quantity;
use crate::probe::stages::{Bench, Stage};

pub use table::describe;

/// What can be asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    /// The clock of the core.
    Clock,
    /// Latency and throughput of additions.
    Add,
    /// Latency and throughput of multiplications.
    Multiply,
    /// Latency and throughput of multiplications fused with an addition.
    Fma,
    /// The length of the floating-point pipeline.
    Pipeline,
    /// Usable vector registers.
    Registers,
    /// Register-to-register performance of each width.
    Peak,
    /// Size and latency of the first data cache.
    L1,
    /// Size and latency of the second cache.
    L2,
    /// Size and latency of the third cache.
    L3,
    /// Latency of memory.
    Memory,
    /// Lines in a set of the first data cache.
    Associativity,
    /// Reach of the TLBs with pages of 4 KiB.
    Tlb,
    /// Reach of the TLBs with pages of 2 MiB.
    TlbHuge,
    /// Bandwidth of memory, one thread.
    Bandwidth,
}

#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// What to measure; empty means everything.
    pub probes: Vec<Probe>,
    /// Runs of each quantity.
    pub runs: usize,
    /// Time for all quantities.
    pub time: Duration,
}

/// The answer of `vtax-agent probe`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probed {
    pub agent: &'static str,
    /// The CPU that it ran on; `None`: the thread could not be pinned.
    pub cpu: Option<usize>,
    /// Runs of each quantity, where there was time.
    pub runs: usize,
    pub budget_s: f64,
    pub seconds: f64,
    /// The name of the counter that timed.
    pub counter: &'static str,
    /// Ticks per second of `CLOCK_MONOTONIC`.
    pub counter_hz: f64,
    pub probes: Vec<Quantity>,
    /// Latency over working sets.
    pub curves: Vec<Drawn>,
    /// What a reader has to know of this run.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    /// `latency`, `tlb_4k` or `tlb_2m`.
    pub name: &'static str,
    /// The share of the memory in huge pages; `None`: unknown.
    pub huge_pages: Option<f64>,
    /// The points of the curve; for the TLBs, latency without the caches' part over the bytes of
    /// the touched pages.
    pub points: Vec<Point>,
    /// The largest working set before each step.
    pub edges: Vec<DrawnEdge>,
    /// Why the curve ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// A step of a curve, with its 95 % interval over the runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DrawnEdge {
    /// The largest working set before the step.
    pub bytes: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval: the next measured size, which does not fit.
    pub high: f64,
}

/// Measure what is asked for.
///
/// The calling thread stays pinned to one CPU. Fails when the processor's counter cannot time.
pub fn measure(options: &ProbeOptions) -> Result<Probed, Error> {
    let begin = Instant::now();
    let pinned = stay_on_last();
    let remedy = "try vtax-agent clocks";
    let meter = Meter::calibrate().map_err(|reason| Error::failure("probe", reason, remedy))?;
    let tree = Tree::host();
    let claims = Claims::host(&tree);
    let mut bench = Bench::new(&options.probes, meter, &claims, &tree);
    let stages = Stage::needed(&options.probes);
    for (at, stage) in stages.iter().enumerate() {
        let left = options.time.saturating_sub(begin.elapsed());
        let weights: u32 = stages[at..].iter().map(|stage| stage.weight()).sum();
        let share = left * stage.weight() / weights;
        bench.carry_out(*stage, &Budget::new(options.runs, share));
    }
    let mut notes = bench.notes;
    notes.extend(
        pinned
            .as_ref()
            .err()
            .map(|reason| format!("not pinned to a CPU: {reason}")),
    );
    Ok(Probed {
        agent: VERSION,
        cpu: pinned.ok(),
        runs: options.runs,
        budget_s: options.time.as_secs_f64(),
        seconds: begin.elapsed().as_secs_f64(),
        counter: COUNTER,
        counter_hz: meter.hz(),
        probes: bench.quantities,
        curves: bench.curves,
        notes,
    })
}
