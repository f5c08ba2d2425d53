//! Sizes and latencies of the caches and of memory, from one curve.

use crate::probe::arena::Arena;
use crate::probe::claims::{Claims, Property};
use crate::probe::curve::{Curve, grid};
use crate::probe::edges::{Edge, Rule};
use crate::probe::meter::{Budget, Meter};
use crate::probe::quantity::{Name, Quantity};
use crate::probe::shuffle::shuffle;

/// Words of 8 bytes from one load to the next: a line of 64 bytes, of which one word is loaded.
const LINE_WORDS: u64 = 8;
/// The smallest working set: a quarter of it is the grid's unit.
const UNIT: u64 = 1 << 10;

const SIZES: [Name; 3] = [
    Name::atlas("l1_size", "L1 Cache Size", "bytes"),
    Name::new("l2_size", "bytes"),
    Name::new("l3_size", "bytes"),
];
const CYCLES: [Name; 3] = [
    Name::new("l1_latency", "cycles"),
    Name::new("l2_latency", "cycles"),
    Name::new("l3_latency", "cycles"),
];
const TIMES: [Name; 3] = [
    Name::new("l1_latency_ns", "ns"),
    Name::new("l2_latency_ns", "ns"),
    Name::new("l3_latency_ns", "ns"),
];
/// A level takes at least this many times as long as the level before: 3 to 4 times are usual; a
/// TLB miss or a busy neighbour in the same cache adds less.
pub const RULE: Rule = Rule {
    smallest_step: 1.5,
    steepest: 1.3,
};
const MEMORY: Name = Name::new("memory_latency", "ns");

/// The curve over working sets up to `most` bytes.
pub fn curve(arena: &mut Arena, most: u64, meter: &Meter, budget: &Budget) -> Curve {
    Curve::measure(arena, &grid(UNIT, most), meter, budget, |bytes| {
        let lines = bytes / (LINE_WORDS * 8);
        let mut words: Vec<u32> = (0..lines).map(|line| word(line * LINE_WORDS)).collect();
        shuffle(&mut words);
        words
    })
}

/// An index into an arena, which has fewer than 2^32 words.
pub fn word(index: u64) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The step that ends each level, by the order of levels.
///
/// The first two steps end L1 and L2. Where more than one step follows, the largest one is L3's: a
/// cache that is shared, or spread over a chip, is no single plateau.
fn levels(edges: &[Edge]) -> [Option<&Edge>; 3] {
    let ratio = |edge: &&Edge| edge.upper.level / edge.lower.level;
    let third = edges.iter().skip(2);
    let largest = third.max_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    [edges.first(), edges.get(1), largest]
}

/// The quantities of one level (1 to 3).
pub fn level(curve: &Curve, number: usize, meter: &Meter, claims: &Claims) -> Vec<Quantity> {
    let at = number - 1;
    let edges = curve.edges(RULE);
    let edge = levels(&edges)[at].ok_or_else(|| missing(curve, &edges, number));
    let size = edge.clone().and_then(|edge| curve.size_before(edge));
    let within = |edge: &Edge| (edge.lower.first, edge.at.min(edge.lower.last));
    let ticks = edge.clone().and_then(|edge| {
        let (first, last) = within(edge);
        curve.level(first, last)
    });
    let cycles = edge.and_then(|edge| {
        let (first, last) = within(edge);
        curve.level_cycles(first, last)
    });
    let claimed = claims.cache(u32::try_from(number).unwrap_or(0), Property::Size);
    vec![
        SIZES[at].found(size, claimed),
        CYCLES[at].alone(cycles),
        TIMES[at].alone(ticks.map(|ticks| ticks.scaled(|ticks| meter.nanoseconds(ticks)))),
    ]
}

/// The latency of memory: the last plateau's, when it lies beyond every claimed cache.
pub fn memory(curve: &Curve, meter: &Meter, claims: &Claims) -> Quantity {
    let largest = claims.largest_cache();
    let edges = curve.edges(RULE);
    let last = edges.last().ok_or_else(|| missing(curve, &edges, 1));
    let found = last.and_then(|edge| {
        let (first, end) = (edge.upper.first, edge.upper.last);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
        let beyond = curve.sizes[end] as f64 > 1.5 * largest;
        let within = "no working set was larger than 1.5 times the largest cache claimed";
        beyond.then_some(()).ok_or(ended(curve, within))?;
        curve.level(first, end)
    });
    MEMORY.alone(found.map(|ticks| ticks.scaled(|ticks| meter.nanoseconds(ticks))))
}

fn missing(curve: &Curve, edges: &[Edge], number: usize) -> String {
    let at: Vec<String> = edges
        .iter()
        .map(|edge| format!("{} KiB", curve.sizes[edge.at] >> 10))
        .collect();
    let places = if at.is_empty() {
        String::new()
    } else {
        format!(" (after {})", at.join(", "))
    };
    let short = format!("the curve has {} steps{places}, not {number}", edges.len());
    ended(curve, &short)
}

fn ended(curve: &Curve, reason: &str) -> String {
    match &curve.ended {
        Some(ended) => format!("{reason}; {ended}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::edges::edges;

    fn curve_of(parts: &[(usize, f64)]) -> Curve {
        let ticks: Vec<Vec<f64>> = parts
            .iter()
            .flat_map(|(count, level)| vec![vec![*level; 20]; *count])
            .collect();
        Curve {
            sizes: grid(UNIT, 1 << 40)[..ticks.len()].to_vec(),
            cycle_ticks: vec![1.0; ticks.len()],
            ticks,
            ended: None,
        }
    }

    #[test]
    fn the_largest_step_after_the_second_ends_l3() {
        let curve = curve_of(&[(13, 4.0), (20, 14.0), (8, 50.0), (8, 80.0), (8, 300.0)]);
        let found = edges(&curve.medians(), RULE);
        let sizes = levels(&found).map(|edge| edge.map(|edge| edge.at));
        assert_eq!(sizes, [Some(12), Some(32), Some(48)]);
    }

    #[test]
    fn a_level_without_a_step_has_a_reason() {
        let tree = vtax_sys::tree::Tree::at("/nowhere");
        let meter = Meter::calibrate().unwrap();
        let curve = curve_of(&[(13, 4.0), (20, 14.0)]);
        let claims = Claims::host(&tree);
        let l1 = level(&curve, 1, &meter, &claims);
        assert_eq!((l1[0].value, l1[0].high), (Some(32768.0), Some(40960.0)));
        assert_eq!(l1[1].value, Some(4.0));
        for quantity in level(&curve, 3, &meter, &claims) {
            assert_eq!(quantity.value, None);
            assert!(quantity.reason.unwrap().contains("1 steps (after 32 KiB)"));
        }
    }
}
