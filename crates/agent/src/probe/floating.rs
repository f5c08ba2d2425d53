//! Latency and throughput of floating-point instructions, their pipeline, registers and peak.
//!
//! Times are in cycles of the core: every timing has a timing of dependent integer additions beside
//! it, each of which takes a cycle, so that the core's clock cancels out.

use crate::probe::claims::Claims;
use crate::probe::meter::{Budget, Meter, fewest, float};
use crate::probe::quantity::{Name, Quantity};
use crate::probe::registers::{
    MANY, OPERANDS, Operation, Rounds, SPILLS, UNROLL, Width, has, kernel, spilling,
};
use vtax_tuner::statistics::Interval;

const REGISTERS: Name = Name::atlas("vector_registers", "FPU: Registers num.", "registers");
const PIPELINE: Name = Name::atlas("pipeline_cycles", "FPU: Pipeline cycle", "cycles");
const DEPTH: Name = Name::new("pipeline_depth", "chains");
/// From this share of the best throughput on, a throughput counts as full.
const ALL_OF_IT: f64 = 0.95;
/// A spill that costs nothing keeps at least this share of the throughput.
const KEPT: f64 = 0.9;

/// The names of one operation's latency and throughput.
pub struct Names {
    operation: Operation,
    latency: Name,
    throughput: Name,
}

pub const ADD: Names = Names {
    operation: Operation::Add,
    latency: Name::new("add_latency", "cycles"),
    throughput: Name::new("add_throughput", "1/cycle"),
};
pub const MULTIPLY: Names = Names {
    operation: Operation::Multiply,
    latency: Name::new("multiply_latency", "cycles"),
    throughput: Name::new("multiply_throughput", "1/cycle"),
};
/// Names for a multiplication fused with an addition.
pub const FMA: Names = Names {
    operation: Operation::Fma,
    latency: Name::new("fma_latency", "cycles"),
    throughput: Name::new("fma_throughput", "1/cycle"),
};

/// The peak of each width that this architecture may have.
#[cfg(target_arch = "x86_64")]
const PEAKS: &[(Width, Name)] = &[
    (Width::Scalar, Name::atlas("peak_scalar", FIGURE, "GFLOP/s")),
    (Width::Bits128, Name::new("peak_sse2", "GFLOP/s")),
    (Width::Bits256, Name::new("peak_avx2", "GFLOP/s")),
    (Width::Bits512, Name::new("peak_avx512", "GFLOP/s")),
];
/// The same on arm64.
#[cfg(target_arch = "aarch64")]
const PEAKS: &[(Width, Name)] = &[
    (Width::Scalar, Name::atlas("peak_scalar", FIGURE, "GFLOP/s")),
    (Width::Bits128, Name::new("peak_neon", "GFLOP/s")),
];
/// ATLAS's name for what figure 2 of the paper shows.
const FIGURE: &str = "FPU register-to-register performance";

/// One run: ticks of a round, and ticks of a cycle at that moment.
#[derive(Debug, Clone, Copy)]
struct Timing {
    round: f64,
    cycle: f64,
}

impl Timing {
    fn cycles(self) -> f64 {
        self.round / self.cycle
    }
}

fn timed(run: Rounds, meter: &Meter, budget: &Budget) -> Vec<Timing> {
    let rounds = meter.rounds(run);
    budget.repeat(|| Timing {
        round: fewest(rounds, run) / float(rounds),
        cycle: meter.cycle_ticks(),
    })
}

/// The code of an operation, or why there is none.
fn code(operation: Operation, width: Width, chains: usize) -> Result<Rounds, String> {
    let absent = if has(width) {
        "the processor has no such instruction"
    } else {
        "the processor has no vectors of this width, or the kernel has them switched off"
    };
    kernel(operation, width, chains).ok_or_else(|| absent.to_owned())
}

fn interval(timings: &[Timing], value: impl Fn(Timing) -> f64) -> Result<Interval, String> {
    Interval::of(timings.iter().map(|timing| value(*timing)).collect())
}

/// The latency of an operation by one chain, its throughput by many chains; of doubles, one at a
/// time.
pub fn operation(names: &Names, meter: &Meter, budget: &Budget) -> Vec<Quantity> {
    let latency = code(names.operation, Width::Scalar, 1).and_then(|run| {
        let timings = timed(run, meter, budget);
        interval(&timings, |timing| timing.cycles() / f64::from(UNROLL))
    });
    let throughput = code(names.operation, Width::Scalar, MANY).and_then(|run| {
        let timings = timed(run, meter, budget);
        interval(&timings, |timing| per_round(MANY) / timing.cycles())
    });
    vec![
        names.latency.alone(latency),
        names.throughput.alone(throughput),
    ]
}

/// Instructions in one round.
fn per_round(chains: usize) -> f64 {
    float(chains as u64) * f64::from(UNROLL)
}

/// The length of the pipeline: the latency of a multiplication and an addition, and the number of
/// chains that keep the pipeline full.
pub fn pipeline(meter: &Meter, budget: &Budget) -> Vec<Quantity> {
    let latency = code(Operation::MultiplyAdd, Width::Scalar, 1).and_then(|run| {
        let timings = timed(run, meter, budget);
        interval(&timings, |timing| timing.cycles() / f64::from(UNROLL))
    });
    let fused = kernel(Operation::Fma, Width::Scalar, 1).is_some();
    let operation = if fused {
        Operation::Fma
    } else {
        Operation::MultiplyAdd
    };
    let measured: Vec<(usize, Vec<Timing>)> = (1..16)
        .filter_map(|chains| Some((chains, kernel(operation, Width::Scalar, chains)?)))
        .map(|(chains, run)| (chains, timed(run, meter, budget)))
        .collect();
    let depths = rows(&measured)
        .iter()
        .filter_map(|row| depth(row))
        .collect();
    vec![PIPELINE.alone(latency), DEPTH.alone(Interval::of(depths))]
}

/// For each run: numbers of chains or accumulators with their throughput.
fn rows(measured: &[(usize, Vec<Timing>)]) -> Vec<Vec<(usize, f64)>> {
    let runs = measured.iter().map(|(_, timings)| timings.len()).min();
    let rate = |(chains, timings): &(usize, Vec<Timing>), run: usize| {
        (*chains, per_round(*chains) / timings[run].cycles())
    };
    (0..runs.unwrap_or(0))
        .map(|run| measured.iter().map(|one| rate(one, run)).collect())
        .collect()
}

/// The smallest number of chains that has the best throughput.
fn depth(row: &[(usize, f64)]) -> Option<f64> {
    let best = row.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let full = row.iter().find(|(_, rate)| *rate >= ALL_OF_IT * best)?;
    Some(float(full.0 as u64))
}

/// The number of vector registers that can be used before values have to go to memory.
pub fn registers(meter: &Meter, budget: &Budget) -> Quantity {
    let measured: Vec<(usize, Vec<Timing>)> = SPILLS
        .iter()
        .filter_map(|count| Some((*count, timed(spilling(*count)?, meter, budget))))
        .collect();
    REGISTERS.found(usable(&measured), Claims::registers())
}

fn usable(measured: &[(usize, Vec<Timing>)]) -> Result<Interval, String> {
    let most = measured
        .last()
        .ok_or("there is no code that spills for this architecture")?;
    let kept: Vec<f64> = rows(measured)
        .iter()
        .filter_map(|row| keeping(row))
        .collect();
    let none = format!("spilling costs nothing up to {} accumulators", most.0);
    if kept.is_empty() && !most.1.is_empty() {
        return Err(none);
    }
    Interval::of(kept).map(|kept| kept.scaled(|count| count + f64::from(OPERANDS)))
}

/// The largest number of accumulators before throughput falls; `None`: throughput does not fall.
fn keeping(row: &[(usize, f64)]) -> Option<f64> {
    let mut best = 0.0_f64;
    for pair in row.windows(2) {
        best = best.max(pair[0].1);
        if pair[1].1 < KEPT * best {
            return Some(float(pair[0].0 as u64));
        }
    }
    None
}

/// Operations on doubles per second without memory, for each width.
pub fn peaks(meter: &Meter, budget: &Budget) -> Vec<Quantity> {
    let each = PEAKS.iter();
    each.map(|(width, name)| name.alone(peak(*width, meter, budget)))
        .collect()
}

/// Scalar code multiplies and adds in separate instructions, as the paper's machines had to.
fn peak(width: Width, meter: &Meter, budget: &Budget) -> Result<Interval, String> {
    let separate = code(Operation::Both, width, MANY).map(|run| (Operation::Both, run));
    let fused = code(Operation::Fma, width, MANY).map(|run| (Operation::Fma, run));
    let (operation, run) = match width {
        Width::Scalar => separate,
        _ => fused.or(separate),
    }?;
    let each = per_round(MANY) * f64::from(operation.flops() * width.lanes());
    let timings = timed(run, meter, budget);
    interval(&timings, |timing| each * meter.hz() / timing.round / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_chains_that_keep_the_pipeline_full() {
        let row: Vec<(usize, f64)> = (1..16)
            .map(|chains| (chains, [0.25, 2.0][usize::from(chains >= 8)]))
            .collect();
        assert_eq!(depth(&row), Some(8.0));
        assert_eq!(depth(&[]), None);
    }

    #[test]
    fn registers_end_where_throughput_falls() {
        assert_eq!(
            keeping(&[(14, 3.9), (15, 4.0), (16, 1.9), (17, 1.8)]),
            Some(15.0)
        );
        assert_eq!(keeping(&[(4, 3.0), (8, 3.5), (15, 4.0), (16, 3.9)]), None);
        assert_eq!(keeping(&[]), None);
    }

    #[test]
    fn a_spill_that_costs_nothing_is_a_reason() {
        let even = |count: usize| {
            let round = per_round(count);
            (count, vec![Timing { round, cycle: 1.0 }; 20])
        };
        let found = usable(&[even(14), even(15), even(16)]);
        assert!(found.unwrap_err().contains("up to 16"));
        let slow = (
            16,
            vec![
                Timing {
                    round: 640.0,
                    cycle: 1.0
                };
                20
            ],
        );
        let found = usable(&[even(14), even(15), slow]).unwrap();
        assert_eq!((found.value, found.low, found.high), (16.0, 16.0, 16.0));
    }
}
