//! What one reading of a clock costs.

use std::hint::black_box;
use std::time::Duration;

use vtax_sys::clock::monotonic_ns;

use crate::clocks::distribution::Distribution;
use crate::clocks::limits::Limits;

/// A batch takes at least this long, so that the two readings of the timer around it are under 1 %
/// of it.
const SHORTEST_BATCH_NS: u64 = 10_000;
/// And at least this many steps of the timer, so that its resolution is at most 2 % of a batch.
const TIMER_STEPS: u64 = 50;
const SMALLEST_BATCH: u32 = 64;
/// The largest batch, for a timer that stands still.
const LARGEST_BATCH: u32 = 1 << 20;
/// A batch of less than this part of what is enough grows by as much at once.
const FASTEST_GROWTH: u8 = 16;
/// An interruption can lengthen one batch, but hardly three.
const TRIALS: usize = 3;
const FEWEST: usize = 5;
pub const MOST_BATCHES: usize = 2_000;

/// When a batch is long enough, and how many batches there are.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The size of the first batch.
    pub smallest: u32,
    /// As many batches take more than the usual time, if need be.
    pub fewest: usize,
    /// The most batches.
    pub most: usize,
    /// What a batch takes at least.
    pub enough_ns: u64,
    pub limits: Limits,
}

/// The least time of a batch: this, and some steps of `CLOCK_MONOTONIC`, which times it.
pub fn enough_ns(shortest_ns: u64, timer_step_ns: u64) -> u64 {
    shortest_ns.max(TIMER_STEPS.saturating_mul(timer_step_ns))
}

/// Why a clock with such steps gives no number.
pub fn too_coarse(timer_step_ns: u64) -> String {
    format!("CLOCK_MONOTONIC has steps of {timer_step_ns} ns: too coarse to time calls")
}

/// Timed batches.
#[derive(Debug)]
pub struct Sample<T> {
    /// Nanoseconds of each batch, with what else was seen of it.
    pub batches: Vec<(u64, T)>,
    /// The size of each batch.
    pub size: u32,
}

/// Time batches, which grow until they are long enough, for the usual time.
///
/// `batch` does work of a size, and returns what it took. A first batch that takes all the time is
/// the only one. Fails where a batch fails.
pub fn sample<T, E>(
    mut batch: impl FnMut(u32) -> Result<(u64, T), E>,
    rules: &Rules,
) -> Result<Sample<T>, E> {
    let begin = monotonic_ns();
    let passed = || monotonic_ns().saturating_sub(begin);
    let (usual_ns, longest_ns) = (
        nanoseconds(rules.limits.usual),
        nanoseconds(rules.limits.longest),
    );
    let mut size = rules.smallest;
    let mut batches = Vec::new();
    // The first batch is made whatever the time: it may be over when this thread runs again.
    loop {
        let one = batch(size)?;
        let now_ns = passed();
        let over = now_ns >= longest_ns;
        // A batch that is too short counts where no time is left for a longer one.
        if one.0 < rules.enough_ns && batches.len() < TRIALS && size < LARGEST_BATCH && !over {
            batches.clear();
            let far = one.0 < rules.enough_ns / u64::from(FASTEST_GROWTH);
            let growth = u32::from(if far { FASTEST_GROWTH } else { 2 });
            size = (size * growth).min(LARGEST_BATCH);
        } else {
            batches.push(one);
        }
        let more = batches.len() < rules.fewest || now_ns < usual_ns;
        if !more || over || batches.len() >= rules.most {
            return Ok(Sample { batches, size });
        }
    }
}

/// The cost of one reading in nanoseconds, from the means of batches of readings.
///
/// `timer_step_ns` is the smallest step of `CLOCK_MONOTONIC`. The error is the reason why there is
/// no answer.
pub fn measure<T>(
    read: impl Fn() -> T,
    timer_step_ns: u64,
    limits: Limits,
) -> Result<Distribution, String> {
    let rules = Rules {
        smallest: SMALLEST_BATCH,
        fewest: FEWEST,
        most: MOST_BATCHES,
        enough_ns: enough_ns(SHORTEST_BATCH_NS, timer_step_ns),
        limits,
    };
    if rules.enough_ns.saturating_mul(FEWEST as u64) > nanoseconds(limits.usual) {
        return Err(too_coarse(timer_step_ns));
    }
    let timed = |size| Ok::<_, String>((batch_ns(&read, size), ()));
    let Sample { batches, size } = sample(timed, &rules)?;
    let few = format!(
        "in {} ms only {} batches of {size}",
        limits.longest.as_millis(),
        batches.len()
    );
    let means = batches.iter().map(|(ns, ())| mean(*ns, size)).collect();
    let enough = batches.len() >= FEWEST;
    enough.then(|| Distribution::of(means)).flatten().ok_or(few)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn batch_ns<T>(read: impl Fn() -> T, size: u32) -> u64 {
    let begin = monotonic_ns();
    for _ in 0..size {
        black_box(read());
    }
    monotonic_ns().saturating_sub(begin)
}

#[allow(clippy::cast_precision_loss, reason = "a batch is far below 2^53 ns")]
fn mean(nanoseconds: u64, size: u32) -> f64 {
    nanoseconds as f64 / f64::from(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        usual: Duration::from_millis(20),
        longest: Duration::from_secs(20),
    };

    #[test]
    fn a_reading_costs_at_least_what_it_waits() {
        let wait = || {
            let begin = monotonic_ns();
            while monotonic_ns() < begin + 2_000 {}
        };
        let cost = measure(wait, 1, LIMITS).unwrap();
        assert!(cost.min >= 2_000.0, "{cost:?}");
        assert!(cost.n >= FEWEST);
    }

    #[test]
    fn a_timer_that_is_too_coarse_gives_no_number() {
        let reason = measure(|| 1, 1_000_000, LIMITS).unwrap_err();
        assert!(reason.contains("1000000 ns"), "{reason}");
    }

    #[test]
    fn readings_that_are_too_slow_give_no_number() {
        let limits = Limits {
            longest: LIMITS.usual,
            ..LIMITS
        };
        let slow = || std::thread::sleep(Duration::from_millis(1));
        let reason = measure(slow, 1, limits).unwrap_err();
        assert!(reason.contains("only 1 batches of 64"), "{reason}");
    }
}
