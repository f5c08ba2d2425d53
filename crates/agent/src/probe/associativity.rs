//! How many lines a set of the first-level cache has.

use crate::probe::arena::Arena;
use crate::probe::caches::word;
use crate::probe::claims::{Claims, Property};
use crate::probe::curve::Curve;
use crate::probe::meter::{Budget, Meter, float};
use crate::probe::quantity::{Name, Quantity};
use crate::probe::shuffle::shuffle;
use vtax_tuner::statistics::Interval;

const WAYS: Name = Name::new("l1_associativity", "ways");
/// A smaller jump may be noise.
const SMALLEST_JUMP: f64 = 1.25;
/// The most lines of one set that are tried.
const MOST_WAYS: u64 = 32;

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

/// The quantity where there is no memory to measure in.
pub fn absent(reason: String, claims: &Claims) -> Quantity {
    WAYS.found(Err(reason), claims.cache(1, Property::Ways))
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
    fn strides_are_powers_of_two() {
        assert_eq!(stride_words(32768.0), Some(4096));
        assert_eq!(stride_words(49152.0), Some(8192));
        assert_eq!(stride_words(1e9), None);
    }
}
