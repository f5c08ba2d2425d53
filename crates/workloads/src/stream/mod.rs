//! Memory bandwidth by the four STREAM kernels on one thread.
//!
//! After J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance
//! Computers", IEEE TCCA Newsletter, December 1995, and his `stream.c` 5.10: three arrays of
//! doubles, each at least four times the last-level cache; the best of all rounds but the first;
//! bytes are those that the program accesses, not those that the caches move.
//!
//! One thing differs: the factor. With `stream.c`'s 3 the values grow 15-fold in each round and
//! overflow after 262 rounds. With √2 - 1 they stay constant, because 2s + s² = 1.

mod kernels;

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

use vtax_sys::terminal::Error;

const FACTOR: f64 = std::f64::consts::SQRT_2 - 1.0;
/// The size where the cache's size is unknown: `stream.c`'s default of 10 million elements.
const DEFAULT_BYTES: u64 = 80_000_000;
const CACHE_MULTIPLE: u64 = 4;
/// A round with less would be too short for the clock.
const SMALLEST_BYTES: u64 = 1 << 16;
/// `stream.c`'s bound on the average relative error of doubles.
const TOLERANCE: f64 = 1e-13;

/// The bytes per element that each kernel counts: copy, scale, add, triad.
const COUNTED_BYTES: [f64; 4] = [16.0, 16.0, 24.0, 24.0];

/// What `vtax-agent stream` prints. A GB is 10^9 bytes.
#[derive(Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// Size of each of the three arrays.
    pub array_bytes: u64,
    /// Rounds, the first of which is not counted.
    pub times: u32,
    /// c = a
    pub copy_gb_s: f64,
    /// b = s c
    pub scale_gb_s: f64,
    /// c = a + b
    pub add_gb_s: f64,
    /// a = b + s c
    pub triad_gb_s: f64,
    /// Did the arrays hold the right values at the end? Always true in a printed result.
    pub verified: bool,
    /// The size of the last-level cache, to which `array_bytes` should be at least four times.
    pub last_level_cache_bytes: Option<u64>,
}

/// The facts of a machine that decide the size of the arrays; `None`: unknown.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub last_level_cache_bytes: Option<u64>,
    /// The memory that is available without swapping.
    pub available_bytes: Option<u64>,
}

/// Measure with arrays of `bytes` each (default: four times the last-level cache).
///
/// # Errors
/// A misuse when the arrays are too small to time or do not fit; a failure when they hold wrong
/// values at the end.
pub fn measure(memory: Memory, bytes: Option<u64>, times: u32) -> Result<Bandwidth, Error> {
    let cache = memory.last_level_cache_bytes;
    let wanted = bytes.unwrap_or_else(|| default_bytes(cache));
    let elements = checked_elements(wanted, memory.available_bytes)?;
    let mut arrays = Arrays::new(elements)?;
    let best = arrays.rounds(times);
    if !arrays.verify(times) {
        let reason = "the arrays hold wrong values";
        return Err(Error::failure(
            "stream",
            reason,
            "do not trust this machine: see its logs",
        ));
    }
    let rate = |kernel: usize| COUNTED_BYTES[kernel] * as_float(elements) / best[kernel] / 1e9;
    Ok(Bandwidth {
        array_bytes: wanted / 8 * 8,
        times,
        copy_gb_s: rate(0),
        scale_gb_s: rate(1),
        add_gb_s: rate(2),
        triad_gb_s: rate(3),
        verified: true,
        last_level_cache_bytes: cache,
    })
}

fn default_bytes(cache: Option<u64>) -> u64 {
    cache.map_or(DEFAULT_BYTES, |cache| {
        cache.saturating_mul(CACHE_MULTIPLE).max(DEFAULT_BYTES)
    })
}

fn checked_elements(bytes: u64, available: Option<u64>) -> Result<usize, Error> {
    if bytes < SMALLEST_BYTES {
        let reason = format!("{bytes} bytes are too few to time");
        return Err(Error::misuse(
            "stream: --bytes",
            reason,
            "give 65536 or more",
        ));
    }
    let refused = |available: u64| {
        let reason = format!(
            "three arrays of {bytes} bytes do not fit into the {available} bytes of memory available"
        );
        Error::misuse("stream: --bytes", reason, "give fewer bytes")
    };
    let needed = bytes
        .checked_mul(3)
        .ok_or_else(|| refused(available.unwrap_or(u64::MAX)))?;
    match available {
        Some(available) if needed > available => Err(refused(available)),
        _ => usize::try_from(bytes / 8).map_err(|_| refused(available.unwrap_or(u64::MAX))),
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "element counts are far below 2^52"
)]
fn as_float(elements: usize) -> f64 {
    elements as f64
}

struct Arrays {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Arrays {
    /// Allocate the arrays and touch them; the values are `stream.c`'s.
    fn new(elements: usize) -> Result<Self, Error> {
        Ok(Self {
            a: filled(elements, 1.0)?,
            b: filled(elements, 2.0)?,
            c: filled(elements, 0.0)?,
        })
    }

    /// Run all rounds; returns the shortest time of each kernel in seconds, without the first
    /// round.
    fn rounds(&mut self, times: u32) -> [f64; 4] {
        let mut best = [f64::INFINITY; 4];
        for round in 0..times {
            let seconds = self.round();
            if round > 0 {
                for (best, seconds) in best.iter_mut().zip(seconds) {
                    *best = best.min(seconds);
                }
            }
        }
        best
    }

    fn round(&mut self) -> [f64; 4] {
        let Self { a, b, c } = self;
        // The compiler must not carry knowledge of the arrays from one kernel to the next.
        let copy = seconds(|| kernels::copy(black_box(&mut *c), black_box(&*a)));
        let scale = seconds(|| kernels::scale(black_box(&mut *b), black_box(&*c), FACTOR));
        let add = seconds(|| kernels::add(black_box(&mut *c), black_box(&*a), black_box(&*b)));
        let triad =
            seconds(|| kernels::triad(black_box(&mut *a), black_box(&*b), black_box(&*c), FACTOR));
        [copy, scale, add, triad]
    }

    /// Compare the arrays with the same arithmetic on single numbers, as `stream.c` does.
    fn verify(&self, times: u32) -> bool {
        let (mut a, mut b, mut c) = (1.0, 2.0, 0.0);
        for _ in 0..times {
            c = a;
            b = FACTOR * c;
            c += b;
            a = b + FACTOR * c;
        }
        let holds = |array: &[f64], value: f64| average_error(array, value) <= TOLERANCE;
        holds(&self.a, a) && holds(&self.b, b) && holds(&self.c, c)
    }
}

fn filled(elements: usize, value: f64) -> Result<Vec<f64>, Error> {
    let mut array = Vec::new();
    array
        .try_reserve_exact(elements)
        .map_err(|error| Error::failure("stream", error, "give fewer --bytes"))?;
    array.resize(elements, value);
    Ok(array)
}

/// Average relative error; a NaN anywhere makes it NaN, which no bound accepts.
fn average_error(array: &[f64], value: f64) -> f64 {
    let sum: f64 = array.iter().map(|element| (element - value).abs()).sum();
    sum / as_float(array.len()) / value.abs()
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: u32) -> Arrays {
        let mut arrays = Arrays::new(10_001).unwrap();
        let best = arrays.rounds(times);
        assert!(
            best.iter()
                .all(|seconds| seconds.is_finite() && *seconds > 0.0)
        );
        arrays
    }

    #[test]
    fn right_values_are_verified_also_after_many_rounds() {
        assert!(after(2).verify(2));
        assert!(after(2000).verify(2000));
    }

    #[test]
    fn wrong_values_are_noticed() {
        for wrong in [f64::NAN, 0.0, f64::INFINITY, 1.1] {
            let mut arrays = after(3);
            arrays.b[5000] = wrong;
            assert!(!arrays.verify(3), "{wrong}");
        }
        let mut skipped = after(3);
        skipped.c.fill(0.0);
        assert!(!skipped.verify(3));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert_eq!(checked_elements(1 << 20, Some(3 << 20)).unwrap(), 1 << 17);
        for (bytes, available) in [(1 << 20, Some(1 << 20)), (u64::MAX, None), (8, None)] {
            let error = checked_elements(bytes, available).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn the_default_follows_the_cache() {
        assert_eq!(default_bytes(None), DEFAULT_BYTES);
        assert_eq!(default_bytes(Some(1 << 30)), 4 << 30);
        assert_eq!(default_bytes(Some(1 << 20)), DEFAULT_BYTES);
    }
}
