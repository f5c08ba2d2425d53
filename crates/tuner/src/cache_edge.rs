//! `CacheEdge`: how much of the L2 cache the block of A should take.
//!
//! This is ATLAS's measurement. The paper shows performance with L1 blocking only (figure 3) and
//! with each edge (figure 4), and how often each edge was chosen (figure 5).

use serde::Serialize;

use crate::parameters::Parameters;
use crate::processor::Processor;
use crate::search::gemm::rows_of_edge;
use crate::search::measure::{Sample, in_turns};
use crate::search::trial::{Budget, Trial};
use crate::statistics::Spread;
use crate::vector::Precision;

const SMALLEST_BYTES: u64 = 64 << 10;
/// The last edge when the size of L2 is unknown.
const LARGEST_BYTES: u64 = 4 << 20;

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheEdge {
    /// Rows and columns of the product.
    pub size: usize,
    /// Performance with blocks of NB x NB only; null where it could not be timed.
    pub l1_only: Option<Spread>,
    /// Performance with each edge, in ascending order.
    pub points: Vec<Point>,
    /// The edge that each run would choose; null where L1 blocking alone was fastest.
    pub chosen: Vec<Option<u64>>,
    /// The size of the L2 cache, as the processor gives it.
    pub l2_bytes: Option<u64>,
}

/// Performance with one edge.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    pub bytes: u64,
    /// The MC that belongs to the edge: whole register blocks, so the block of A may be smaller
    /// than the edge.
    #[serde(rename = "MC")]
    pub mc: u32,
    #[serde(flatten)]
    pub spread: Spread,
}

/// Time a product with each edge from 64 KiB to four times L2, and without one, in turns.
///
/// The trial times a product of `size`. Runs end early when the time is up. The error says why
/// nothing could be timed.
pub fn sweep(
    at: &Parameters,
    (processor, precision): (&Processor, Precision),
    trial: &mut impl Trial<Parameters>,
    budget: &Budget,
    (size, runs): (usize, usize),
) -> Result<CacheEdge, String> {
    let edges = edges(at, processor, precision);
    let mut candidates = vec![l1_only(at)];
    candidates.extend(edges.iter().map(|(_, mc)| Parameters { mc: *mc, ..*at }));
    let samples = in_turns(trial, budget, &candidates, runs);
    if let Some(why) = samples.iter().find_map(|sample| sample.as_ref().err()) {
        return Err(why.clone());
    }
    let spread = |sample: &Sample| Spread::of(sample.as_deref().unwrap_or_default());
    let points = edges.iter().zip(&samples[1..]);
    let points = points.filter_map(|((bytes, mc), sample)| {
        let (bytes, mc, spread) = (*bytes, *mc, spread(sample)?);
        Some(Point { bytes, mc, spread })
    });
    Ok(CacheEdge {
        size,
        l1_only: spread(&samples[0]),
        points: points.collect(),
        chosen: chosen(&edges, &samples),
        l2_bytes: processor.l2_bytes,
    })
}

/// Powers of two, each with its MC; powers that hold no register block are left out.
fn edges(at: &Parameters, processor: &Processor, precision: Precision) -> Vec<(u64, u32)> {
    let most = processor.l2_bytes.map_or(LARGEST_BYTES, |l2| 4 * l2);
    let powers = (0..).map(|power| SMALLEST_BYTES << power);
    let powers = powers.take_while(|bytes| *bytes <= most);
    let edges = powers.map(|bytes| (bytes, rows_of_edge(at, precision, bytes)));
    edges.filter(|(_, mc)| *mc > 0).collect()
}

/// Blocks of NB x NB, in whole register blocks, as ATLAS uses before it knows an edge.
fn l1_only(at: &Parameters) -> Parameters {
    let whole = |side: u32| at.nb.next_multiple_of(side.max(1));
    Parameters {
        mc: whole(at.mu),
        nc: whole(at.nu),
        ..*at
    }
}

fn chosen(edges: &[(u64, u32)], samples: &[Sample]) -> Vec<Option<u64>> {
    let samples: Vec<&[f64]> = samples
        .iter()
        .map(|sample| sample.as_deref().unwrap_or_default())
        .collect();
    let rounds = samples.iter().map(|sample| sample.len()).min().unwrap_or(0);
    let bytes = |at: usize| at.checked_sub(1).map(|edge| edges[edge].0);
    let fastest = |round: usize| {
        let each = samples.iter().map(|sample| sample[round]).enumerate();
        let best = each.max_by(|(_, a), (_, b)| a.total_cmp(b));
        best.and_then(|(at, _)| bytes(at))
    };
    (0..rounds).map(fastest).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::search::trial::{Measured, Rejected};
    use crate::vector::Vector;

    const AT: Parameters = Parameters {
        vector: Vector::Portable,
        muladd: false,
        lat: 0,
        nb: 128,
        mu: 8,
        nu: 6,
        ku: 1,
        ffetch: false,
        ifetch: 0,
        nfetch: 0,
        mc: 64,
        nc: 1200,
    };

    fn processor() -> Processor {
        Processor {
            l2_bytes: Some(512 << 10),
            ..Processor::this()
        }
    }

    /// A trial that is best with a block of 256 KiB, but in every third round without any block.
    struct Best(u32);

    impl Trial<Parameters> for Best {
        fn gflops(&mut self, one: &Parameters) -> Result<Measured, Rejected> {
            let alone = one.nc < AT.nc;
            let gflops = match one.cache_edge_bytes(Precision::Double) {
                _ if alone => {
                    self.0 += 1;
                    f64::from(self.0 % 3) * 5.0
                }
                262_144 => 8.0,
                _ => 7.0,
            };
            Ok(Measured::undisturbed(gflops, 1.0))
        }
    }

    fn found(end: u64) -> CacheEdge {
        let now = std::cell::Cell::new(0);
        let clock = || {
            now.set(now.get() + 1);
            Duration::from_secs(now.get())
        };
        let budget = Budget::until(&clock, Duration::from_secs(end));
        let (processor, mut best) = (processor(), Best(0));
        let which = (&processor, Precision::Double);
        sweep(&AT, which, &mut best, &budget, (2500, 6)).unwrap()
    }

    #[test]
    fn edges_go_past_the_physical_cache_and_each_run_chooses() {
        let found = found(100);
        let bytes: Vec<u64> = found.points.iter().map(|point| point.bytes >> 10).collect();
        assert_eq!(bytes, [64, 128, 256, 512, 1024, 2048]);
        let blocks = found.points.iter().map(|point| point.mc);
        assert!(blocks.eq([64, 128, 256, 512, 1024, 2048]));
        let (with, without) = (Some(262_144), None);
        assert_eq!(found.chosen, [with, without, with, with, without, with]);
        assert_eq!(found.points[2].spread.low, Some(8.0));
        assert_eq!(
            (found.l1_only.unwrap().runs, found.l2_bytes),
            (6, Some(524_288))
        );
    }

    #[test]
    fn less_time_means_fewer_runs() {
        let found = found(10);
        let runs = found.chosen.len();
        assert!((1..6).contains(&runs), "{runs}");
        assert!(found.points.iter().all(|point| point.spread.runs == runs));
    }

    #[test]
    fn l1_blocks_are_whole_register_blocks() {
        let alone = l1_only(&AT);
        assert_eq!((alone.mc, alone.nc), (128, 132));
        let tall = Parameters { mu: 4096, ..AT };
        assert!(edges(&tall, &processor(), Precision::Double).is_empty());
    }
}
