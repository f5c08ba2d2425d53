//! The layout of the first-level cache: the length of a line and the lines of a set.

use crate::probe::arena::Arena;
use crate::probe::caches::word;
use crate::probe::claims::{Claims, Property};
use crate::probe::curve::Curve;
use crate::probe::meter::{Budget, Meter, float};
use crate::probe::quantity::{Name, Quantity};
use crate::probe::shuffle::shuffle;
use vtax_tune::statistics::Interval;

const LINE: Name = Name::new("line_size", "bytes");
const WAYS: Name = Name::new("l1_associativity", "ways");
/// A smaller jump may be noise.
const SMALLEST_JUMP: f64 = 1.25;
/// Distances of a pair of words, in bytes.
const DISTANCES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];
/// The block of a pair of words: longer than any line.
const BLOCK_BYTES: u64 = 1024;
/// Pairs that are open at once: few lines compared with the smallest L1.
const OPEN: usize = 64;
/// The number of pairs: that many lines of 64 bytes are 256 KiB, more than any L1.
const BLOCKS: u64 = 4096;
/// The most lines of one set that are tried.
const MOST_WAYS: u64 = 32;

pub const LINE_BYTES: u64 = BLOCK_BYTES * BLOCKS;

/// The length of a line: two words cost one miss in one line, and two misses in two lines.
pub fn line(arena: &mut Arena, meter: &Meter, budget: &Budget, claims: &Claims) -> Quantity {
    let curve = Curve::measure(arena, &DISTANCES, meter, budget, pairs);
    let jumps = curve
        .runs()
        .iter()
        .filter_map(|run| jump(run))
        .collect::<Vec<_>>();
    let first_beyond = jumps.iter().map(|at| float(curve.sizes[*at + 1])).collect();
    let found = no_jump(&curve).and_then(|()| Interval::of(first_beyond));
    LINE.found(found, claims.cache(1, Property::Line))
}

/// The lines of a set: as many lines at distances that are multiples of the cache's size fit in the
/// cache, one more does not. `l1_bytes` is the measured size.
pub fn ways(
    arena: &mut Arena,
    l1_bytes: Option<f64>,
    meter: &Meter,
    budget: &Budget,
    claims: &Claims,
) -> Quantity {
    let claimed = claims.cache(1, Property::Ways);
    let stride = l1_bytes.and_then(stride_words);
    let room = arena.words().len() as u64;
    let Some(stride) = stride.filter(|stride| stride * MOST_WAYS <= room) else {
        let unknown = "the size of L1, which it needs, was not found".to_owned();
        return WAYS.found(Err(unknown), claimed);
    };
    let counts: Vec<u64> = (1..=MOST_WAYS).collect();
    let curve = Curve::measure(arena, &counts, meter, budget, |count| {
        let mut words: Vec<u32> = (0..count).map(|line| word(line * stride)).collect();
        shuffle(&mut words);
        words
    });
    let last = curve
        .runs()
        .into_iter()
        .filter_map(|run| jump(&run))
        .map(|at| float(curve.sizes[at]));
    let last = last.collect();
    WAYS.found(no_jump(&curve).and_then(|()| Interval::of(last)), claimed)
}

/// The order of loads: the first words of some pairs, then their second words in another order, and
/// so on.
///
/// The place of a first word in its block is random, and so is whether the second word lies before
/// or after it: some prefetchers learn which line of a region follows another (Zen).
fn pairs(distance: u64) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..BLOCKS).map(word).collect();
    shuffle(&mut blocks);
    let mut words = Vec::new();
    for open in blocks.chunks(OPEN) {
        let firsts: Vec<u32> = open.iter().map(|block| first_word(*block)).collect();
        let mut seconds: Vec<u32> = firsts.iter().map(|at| at ^ word(distance / 8)).collect();
        shuffle(&mut seconds);
        words.extend(firsts.into_iter().chain(seconds));
    }
    words
}

/// A random word of a block; the upper bits of a product serve as random bits (Knuth's multiplier).
fn first_word(block: u32) -> u32 {
    let block_words = word(BLOCK_BYTES / 8);
    block * block_words + (block.wrapping_mul(2_654_435_761) >> 16) % block_words
}

/// Both quantities, as far as they were asked for, where there is no memory to measure in.
pub fn absent(line: bool, ways: bool, reason: &str, claims: &Claims) -> Vec<Quantity> {
    let without = |wanted: bool, name: Name, property| {
        wanted.then(|| name.found(Err(reason.to_owned()), claims.cache(1, property)))
    };
    let both = [
        without(line, LINE, Property::Line),
        without(ways, WAYS, Property::Ways),
    ];
    both.into_iter().flatten().collect()
}

/// A power of two that is a multiple of the size of a way, in words.
fn stride_words(l1_bytes: f64) -> Option<u64> {
    let mut bytes = 1_u64 << 12;
    while float(bytes) < l1_bytes {
        bytes *= 2;
    }
    (bytes <= 1 << 20).then_some(bytes / 8)
}

/// The last point below the middle between the fastest and the slowest, on a logarithmic scale.
fn jump(latencies: &[f64]) -> Option<usize> {
    let fastest = latencies.iter().copied().fold(f64::INFINITY, f64::min);
    let slowest = latencies.iter().copied().fold(0.0, f64::max);
    let middle = (fastest * slowest).sqrt();
    let above = |at: usize| latencies.get(at).is_none_or(|latency| *latency > middle);
    (slowest > SMALLEST_JUMP * fastest).then_some(())?;
    let first = (0..latencies.len()).find(|at| above(*at) && above(at + 1))?;
    first.checked_sub(1)
}

fn no_jump(curve: &Curve) -> Result<(), String> {
    if let Some(ended) = &curve.ended {
        return Err(ended.clone());
    }
    let none = "the latency does not jump by a quarter anywhere".to_owned();
    jump(&curve.medians()).map(drop).ok_or(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jump_is_after_the_last_fast_point() {
        assert_eq!(jump(&[4.0, 4.1, 4.0, 9.0, 12.0, 14.0]), Some(2));
        assert_eq!(
            jump(&[4.0, 9.0, 4.0, 4.0, 12.0, 14.0]),
            Some(3),
            "one point is no jump"
        );
        assert_eq!(jump(&[9.0, 9.0, 9.1, 14.0]), Some(2));
        assert_eq!(jump(&[4.0; 9]), None);
        assert_eq!(jump(&[]), None);
        assert_eq!(jump(&[14.0, 14.0, 4.0]), None, "nothing before it");
    }

    #[test]
    fn a_pair_is_in_one_block_and_as_far_apart_as_asked() {
        for distance in DISTANCES {
            let words = pairs(distance);
            let mut sorted = words.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len() as u64, 2 * BLOCKS);
            for first in (0..word(BLOCKS)).map(first_word) {
                let second = first ^ word(distance / 8);
                assert_eq!(u64::from(first.abs_diff(second)) * 8, distance);
                assert_eq!(first / 128, second / 128);
                assert!(sorted.binary_search(&second).is_ok());
            }
        }
    }

    #[test]
    fn strides_are_powers_of_two() {
        assert_eq!(stride_words(32768.0), Some(4096));
        assert_eq!(stride_words(49152.0), Some(8192));
        assert_eq!(stride_words(1e9), None);
    }
}
