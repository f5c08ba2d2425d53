//! Latency of dependent loads, over a growing working set.

use serde::Serialize;

use crate::probe::arena::Arena;
use crate::probe::edges::{Edge, Rule, crossing, edges};
use crate::probe::meter::{Budget, Meter, float, usual};
use crate::probe::unsafe_cycle::{Cycle, LOADS};
use vtax_tuner::statistics::{Interval, median};

/// The curve of one kind of working set.
#[derive(Debug, Clone, Default)]
pub struct Curve {
    /// Working-set sizes, ascending.
    pub sizes: Vec<u64>,
    /// Ticks of one load: for each size, one value for each run.
    pub ticks: Vec<Vec<f64>>,
    /// Ticks of one core cycle, for each size.
    pub cycle_ticks: Vec<f64>,
    /// Why the curve ends early.
    pub ended: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Working set.
    pub bytes: u64,
    /// The median latency of one load.
    pub ns: f64,
    /// The lower end of the 95 % interval of `ns`.
    pub low: f64,
    /// The upper end of the 95 % interval of `ns`.
    pub high: f64,
    /// The median latency in core cycles.
    pub cycles: f64,
}

/// 4, 5, 6 and 7 times each power of two, times `unit`, up to `most`: these are usual cache sizes.
pub fn grid(unit: u64, most: u64) -> Vec<u64> {
    let octaves = (0..50).map(|octave| unit << octave);
    let all = octaves.flat_map(|scale| [4, 5, 6, 7].map(|quarter| quarter * scale));
    all.take_while(|size| *size <= most).collect()
}

impl Curve {
    /// Measure; `order` gives the words of a working set of each size, in order.
    ///
    /// Each working set is walked once before it is timed, and each timing continues where the last
    /// one stopped, so that in a set that does not fit, no word was loaded recently.
    pub fn measure(
        arena: &mut Arena,
        sizes: &[u64],
        meter: &Meter,
        budget: &Budget,
        order: impl Fn(u64) -> Vec<u32>,
    ) -> Self {
        let mut curve = Self::default();
        for size in sizes {
            let words = order(*size);
            let measured = point(arena, &words, meter, budget);
            let Some((ticks, cycle_ticks)) = measured else {
                curve.ended = Some(format!("the time was up before size {size}"));
                break;
            };
            curve.sizes.push(*size);
            curve.ticks.push(ticks);
            curve.cycle_ticks.push(cycle_ticks);
        }
        curve
    }

    /// The median latency of each size, in ticks.
    pub fn medians(&self) -> Vec<f64> {
        let each = self.ticks.iter();
        each.map(|ticks| median(ticks.clone()).unwrap_or(f64::NAN))
            .collect()
    }

    /// The curve of each run, as far as every size has a value for that run.
    pub fn runs(&self) -> Vec<Vec<f64>> {
        let all = self.ticks.iter().map(Vec::len).min().unwrap_or(0);
        let run = |at: usize| self.ticks.iter().map(|ticks| ticks[at]).collect();
        (0..all).map(run).collect()
    }

    /// The steps up in the medians.
    pub fn edges(&self, rule: Rule) -> Vec<Edge> {
        edges(&self.medians(), rule)
    }

    /// The largest size before a step, over the runs: the interval reaches to the next measured
    /// size, which does not fit.
    pub fn size_before(&self, edge: &Edge) -> Result<Interval, String> {
        let runs = self.runs();
        let crossings = runs
            .iter()
            .filter_map(|run| crossing(run, &edge.lower, &edge.upper));
        let last: Vec<f64> = crossings.map(|at| float(self.sizes[at])).collect();
        let found =
            Interval::of(last).map_err(|few| format!("the step is not in all runs: {few}"))?;
        let next = |size: f64| {
            let larger = self.sizes.iter().map(|one| float(*one));
            larger.into_iter().find(|one| *one > size).unwrap_or(size)
        };
        // There may be a slope between the plateaus: the step is somewhere on it.
        let (last, first) = (self.sizes[edge.lower.last], self.sizes[edge.upper.first]);
        Ok(Interval {
            low: found.low.min(float(last)),
            high: next(found.high).max(float(first)),
            ..found
        })
    }

    /// The latency of a plateau's points in ticks, over the runs.
    pub fn level(&self, first: usize, last: usize) -> Result<Interval, String> {
        let runs = self.runs();
        let levels = runs
            .iter()
            .filter_map(|run| median(run[first..=last].to_vec()));
        Interval::of(levels.collect())
    }

    /// The same latency in cycles: each point was timed beside additions.
    pub fn level_cycles(&self, first: usize, last: usize) -> Result<Interval, String> {
        let runs = self.runs();
        let cycles = |run: &Vec<f64>| {
            let each = (first..=last).map(|at| run[at] / self.cycle_ticks[at]);
            median(each.collect())
        };
        Interval::of(runs.iter().filter_map(cycles).collect())
    }

    /// The points of the curve, where a unit of size is `unit_bytes` bytes.
    pub fn points(&self, meter: &Meter, unit_bytes: u64) -> Vec<Point> {
        let all = self.sizes.iter().zip(&self.ticks).zip(&self.cycle_ticks);
        all.filter_map(|((size, ticks), cycle)| {
            let found = Interval::of(ticks.clone()).ok()?;
            Some(Point {
                bytes: size * unit_bytes,
                ns: meter.nanoseconds(found.value),
                low: meter.nanoseconds(found.low),
                high: meter.nanoseconds(found.high),
                cycles: found.value / cycle,
            })
        })
        .collect()
    }
}

/// Ticks of a load for each run, and ticks of a cycle; `None`: the time was up.
fn point(
    arena: &mut Arena,
    words: &[u32],
    meter: &Meter,
    budget: &Budget,
) -> Option<(Vec<f64>, f64)> {
    budget.in_time().then_some(())?;
    let mut cycle = Cycle::link(arena.words_mut(), words)?;
    budget.in_time().then_some(())?;
    go_round(&mut cycle, words.len(), budget)?;
    let steps = meter.rounds(|steps| cycle.follow(steps));
    let loads = float(steps * LOADS);
    let ticks = budget.repeat(|| usual(steps, |steps| cycle.follow(steps)) / loads);
    (ticks.len() == budget.runs).then(|| (ticks, meter.cycle_ticks()))
}

/// Load every word once, in parts, so that the walk ends in time.
fn go_round(cycle: &mut Cycle, words: usize, budget: &Budget) -> Option<()> {
    const PART: u64 = 1 << 12;
    let steps = (words as u64).div_ceil(LOADS);
    for part in 0..steps.div_ceil(PART) {
        budget.in_time().then_some(())?;
        cycle.follow(PART.min(steps - part * PART));
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these numbers have no rounding")]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_the_sizes_of_caches() {
        let sizes = grid(1 << 10, 64 << 20);
        for kib in [
            4,
            12,
            24,
            32,
            48,
            256,
            512,
            1024,
            1280,
            2048,
            32 << 10,
            48 << 10,
            64 << 10,
        ] {
            assert!(sizes.contains(&(kib << 10)), "{kib} KiB");
        }
        assert!(sizes.is_sorted());
        assert_eq!(sizes.last(), Some(&(64 << 20)));
    }

    const RULE: Rule = Rule {
        smallest_step: 1.5,
        steepest: 1.3,
    };

    /// Twenty runs whose steps are at these indices.
    fn synthetic(at: &[usize]) -> Curve {
        let sizes = grid(1 << 10, 1 << 20);
        let latency = |index: usize, edge: usize| if index <= edge { 4.0 } else { 14.0 };
        let column = |index: usize| at.iter().map(|edge| latency(index, *edge)).collect();
        Curve {
            ticks: (0..sizes.len()).map(column).collect(),
            cycle_ticks: vec![2.0; sizes.len()],
            sizes,
            ended: None,
        }
    }

    #[test]
    fn a_size_reaches_to_the_next_one() {
        // 32 KiB is the 13th size.
        let curve = synthetic(&[12; 20]);
        let edges = curve.edges(RULE);
        assert_eq!(edges.len(), 1);
        let found = curve.size_before(&edges[0]).unwrap();
        let kib = |bytes: f64| bytes / 1024.0;
        assert_eq!(
            [found.value, found.low, found.high].map(kib),
            [32.0, 32.0, 40.0]
        );
        let cycles = curve.level_cycles(0, 12).unwrap();
        assert_eq!([cycles.value, cycles.low, cycles.high], [2.0; 3]);
    }

    #[test]
    fn a_slope_is_in_the_interval() {
        let mut curve = synthetic(&[12; 20]);
        for (at, latency) in [(11, 5.5), (12, 7.0), (13, 8.5), (14, 11.0)] {
            curve.ticks[at].fill(latency);
        }
        let edges = curve.edges(RULE);
        assert_eq!(edges.len(), 1, "{edges:?}");
        let found = curve.size_before(&edges[0]).unwrap();
        let kib = |bytes: f64| bytes / 1024.0;
        assert_eq!(kib(found.value), 32.0);
        assert!(
            kib(found.low) <= 28.0 && kib(found.high) >= 48.0,
            "{found:?}"
        );
    }

    #[test]
    fn runs_that_differ_widen_the_interval() {
        let mut at = vec![12; 20];
        at[..8].fill(11);
        at[8..14].fill(14);
        let curve = synthetic(&at);
        let found = curve.size_before(&curve.edges(RULE)[0]).unwrap();
        assert!(
            found.low <= 28.0 * 1024.0 && found.high >= 56.0 * 1024.0,
            "{found:?}"
        );
    }
}
