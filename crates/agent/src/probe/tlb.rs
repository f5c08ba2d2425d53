//! How much memory the TLBs reach, and what a miss in each costs.
//!
//! One line of each page is loaded. The same number of lines on few pages costs what the caches
//! cost; what the first working set takes beyond that is the cost of the TLBs and the page walk.

use crate::probe::arena::Arena;
use crate::probe::caches::word;
use crate::probe::claims::Claims;
use crate::probe::curve::{Curve, grid};
use crate::probe::edges::{Edge, Rule};
use crate::probe::meter::{Budget, Meter, float};
use crate::probe::quantity::{Name, Quantity};
use crate::probe::shuffle::shuffle;
use vtax_tuner::statistics::{Interval, median};

const LINE_WORDS: u64 = 8;
/// The least that remains when the caches' part is subtracted, relative to the smallest working
/// set: noise must not make a latency zero or negative, which has no logarithm.
const LEAST: f64 = 0.25;
/// A miss in the first level that hits in the second adds little. Beyond the second level the walks
/// get steadily longer: a slope counts as steps.
pub const RULE: Rule = Rule {
    smallest_step: 1.15,
    steepest: f64::INFINITY,
};

/// The names of the quantities for one page size.
pub struct Names {
    reach: [Name; 2],
    step: [Name; 2],
}

/// With pages of 4 KiB.
pub const SMALL: Names = Names {
    reach: [
        Name::new("tlb_4k_reach_1", "bytes"),
        Name::new("tlb_4k_reach_2", "bytes"),
    ],
    step: [
        Name::new("tlb_4k_step_1", "cycles"),
        Name::new("tlb_4k_step_2", "cycles"),
    ],
};
/// With pages of 2 MiB.
pub const HUGE: Names = Names {
    reach: [
        Name::new("tlb_2m_reach_1", "bytes"),
        Name::new("tlb_2m_reach_2", "bytes"),
    ],
    step: [
        Name::new("tlb_2m_step_1", "cycles"),
        Name::new("tlb_2m_step_2", "cycles"),
    ],
};

/// Latency over numbers of pages, without the part of the caches.
pub fn curve(arena: &mut Arena, page_bytes: u64, meter: &Meter, budget: &Budget) -> Curve {
    let most = arena.words().len() as u64 * 8 / page_bytes;
    let sizes = grid(1, most);
    let half = Budget::new(budget.runs, budget.left() / 2);
    let dense = Curve::measure(arena, &sizes, meter, &half, |count| {
        order(count, |line| line * LINE_WORDS)
    });
    let spread = Curve::measure(arena, &dense.sizes.clone(), meter, budget, |count| {
        order(count, |page| place(page, page_bytes))
    });
    without(spread, dense)
}

fn order(count: u64, place: impl Fn(u64) -> u64) -> Vec<u32> {
    let mut words: Vec<u32> = (0..count).map(|at| word(place(at))).collect();
    shuffle(&mut words);
    words
}

/// The word of a page that is loaded. The line moves on by one from page to page, so that the lines
/// fall into all sets of the caches evenly, with 4 KiB pages also where the pages are contiguous in
/// memory.
fn place(page: u64, page_bytes: u64) -> u64 {
    let lines = page_bytes / (8 * LINE_WORDS);
    let line = (page + page / 32) % lines;
    page * page_bytes / 8 + line * LINE_WORDS
}

/// The first curve minus the medians of the second; what the smallest working set takes is kept.
fn without(spread: Curve, dense: Curve) -> Curve {
    let caches = dense.medians();
    let Some(first) = caches.first().copied() else {
        return Curve {
            ended: spread.ended.or(dense.ended),
            ..Curve::default()
        };
    };
    let net = |(ticks, caches): (&Vec<f64>, &f64)| {
        let each = ticks.iter();
        each.map(|one| (one - caches + first).max(LEAST * first))
            .collect()
    };
    let mut ticks: Vec<Vec<f64>> = spread.ticks.iter().zip(&caches).map(net).collect();
    never_fall(&mut ticks);
    Curve {
        ticks,
        ended: spread.ended.or(dense.ended),
        ..spread
    }
}

/// More pages never cost the TLBs less. A point above a later point of the same run shows a cache
/// conflict that lines of many pages meet and neighbouring lines do not.
fn never_fall(ticks: &mut [Vec<f64>]) {
    for at in (1..ticks.len()).rev() {
        let (before, from) = ticks.split_at_mut(at);
        for (earlier, later) in before[at - 1].iter_mut().zip(&from[0]) {
            *earlier = earlier.min(*later);
        }
    }
}

/// The reach and the cost of both levels.
pub fn quantities(names: &Names, curve: &Curve, page_bytes: u32, claims: &Claims) -> Vec<Quantity> {
    let edges = curve.edges(RULE);
    let found = [edges.first(), largest(edges.get(1..).unwrap_or_default())];
    let both = found.into_iter().enumerate();
    let levels = both.map(|(at, edge)| edge.ok_or_else(|| missing(curve, page_bytes, at)));
    let each = levels.enumerate().flat_map(|(at, edge)| {
        let reach = edge.clone().and_then(|edge| curve.size_before(edge));
        let reach = reach.map(|pages| pages.scaled(|pages| pages * f64::from(page_bytes)));
        let step = edge.and_then(|edge| step_cycles(curve, edge));
        [
            names.reach[at].found(reach, claims.tlb(at + 1, page_bytes)),
            names.step[at].alone(step),
        ]
    });
    each.collect()
}

/// The step that ends the second level: the largest after the first one. Conflicts in the first
/// cache make a small step, and the caches of the page walk make other steps beyond.
fn largest(edges: &[Edge]) -> Option<&Edge> {
    let ratio = |edge: &&Edge| edge.upper.level / edge.lower.level;
    edges
        .iter()
        .max_by(|one, other| ratio(one).total_cmp(&ratio(other)))
}

/// The step in cycles of each run: the level above minus the level below.
fn step_cycles(curve: &Curve, edge: &Edge) -> Result<Interval, String> {
    let level = |run: &[f64], first: usize, last: usize| {
        let cycles = (first..=last).map(|at| run[at] / curve.cycle_ticks[at]);
        median(cycles.collect())
    };
    let runs = curve.runs();
    let steps = runs.iter().filter_map(|run| {
        let upper = level(run, edge.upper.first, edge.upper.last)?;
        Some(upper - level(run, edge.lower.first, edge.lower.last)?)
    });
    Interval::of(steps.collect())
}

fn missing(curve: &Curve, page_bytes: u32, at: usize) -> String {
    let pages = curve.sizes.last().copied().unwrap_or(0);
    let mib = float(pages) * f64::from(page_bytes) / f64::from(1 << 20);
    let short = format!("no step number {} up to {pages} pages ({mib} MiB)", at + 1);
    match &curve.ended {
        Some(ended) => format!("{short}; {ended}"),
        None => short,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lines_of_pages_fall_into_all_sets_evenly() {
        for (page_bytes, pages, sets) in [(4096, 2048, 2048), (2 << 20, 256, 64)] {
            let mut counts = vec![0; sets];
            let mut seen = BTreeSet::new();
            for page in 0..pages {
                let byte = place(page, page_bytes) * 8;
                assert_eq!(byte / page_bytes, page);
                assert!(seen.insert(byte));
                counts[usize::try_from(byte / 64).unwrap() % sets] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 2, "{page_bytes}: {least} to {most}");
        }
    }

    /// Both caches step at 512 lines; only the spread curve steps at 64 and 2048 pages.
    #[test]
    fn what_the_caches_cost_is_no_step() {
        let sizes = grid(1, 8192);
        let caches = |size: u64| if size > 512 { 30.0 } else { 10.0 };
        let pages = |size: u64| match size {
            ..=64 => 0.0,
            65..=2048 => 15.0,
            _ => 60.0,
        };
        let make = |latency: &dyn Fn(u64) -> f64| Curve {
            ticks: sizes.iter().map(|size| vec![latency(*size); 20]).collect(),
            cycle_ticks: vec![2.0; sizes.len()],
            sizes: sizes.clone(),
            ended: None,
        };
        let curve = without(make(&|size| caches(size) + pages(size)), make(&caches));
        let tree = vtax_sys::tree::Tree::at("/nowhere");
        let nobody = |_| None;
        let found = quantities(&SMALL, &curve, 4096, &Claims::of(&tree, &nobody));
        let values: Vec<_> = found.iter().map(|one| one.value.unwrap()).collect();
        assert_eq!(values, [64.0 * 4096.0, 7.5, 2048.0 * 4096.0, 22.5]);
    }

    #[test]
    fn a_bump_is_no_step() {
        let mut ticks = vec![
            vec![4.0, 4.0],
            vec![9.0, 4.0],
            vec![5.0, 8.0],
            vec![5.5, 9.0],
        ];
        never_fall(&mut ticks);
        let flat = [[4.0, 4.0], [5.0, 4.0], [5.0, 8.0], [5.5, 9.0]];
        assert_eq!(ticks, flat);
    }

    #[test]
    fn a_curve_without_steps_says_how_far_it_went() {
        let curve = Curve {
            sizes: vec![4, 5, 6, 7],
            ticks: vec![vec![1.0; 20]; 4],
            cycle_ticks: vec![1.0; 4],
            ended: None,
        };
        let tree = vtax_sys::tree::Tree::at("/nowhere");
        let nobody = |_| None;
        for one in quantities(&HUGE, &curve, 2 << 20, &Claims::of(&tree, &nobody)) {
            assert!(one.reason.unwrap().contains("up to 7 pages (14 MiB)"));
        }
    }
}
