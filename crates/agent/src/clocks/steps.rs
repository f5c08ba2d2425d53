//! How a clock moves from one reading to the next.

use serde::Serialize;
use vtax_sys::clock::monotonic_ns;

use crate::clocks::limits::Limits;

/// Readings between two looks at the time, so that the looks are not most of the work.
const READINGS_PER_LOOK: u32 = 64;
/// A clock that ticks need not be watched longer: back to back, a change is one tick, unless the
/// thread had to wait meanwhile.
const ENOUGH_CHANGES: u64 = 8;

/// Steps back in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Backward {
    /// Readings that were compared with their predecessor.
    pub readings: u64,
    /// How many of them were earlier.
    pub steps: u64,
    /// The largest step back, in the clock's unit.
    pub largest: u64,
}

impl Backward {
    /// Compare a reading with the one before.
    pub fn compare(&mut self, before: u64, after: u64) {
        self.readings += 1;
        if let Some(back) = before.checked_sub(after).filter(|back| *back > 0) {
            self.steps += 1;
            self.largest = self.largest.max(back);
        }
    }

    /// The sum of what two threads saw.
    pub fn and(self, other: Self) -> Self {
        Self {
            readings: self.readings + other.readings,
            steps: self.steps + other.steps,
            largest: self.largest.max(other.largest),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps {
    last: Option<u64>,
    /// The smallest step forward that is not zero.
    pub smallest: Option<u64>,
    /// Steps forward that are not zero.
    pub changes: u64,
    pub backward: Backward,
}

impl Steps {
    pub fn add(&mut self, reading: u64) {
        if let Some(last) = self.last {
            self.backward.compare(last, reading);
            if let Some(step) = reading.checked_sub(last).filter(|step| *step > 0) {
                self.changes += 1;
                self.smallest = Some(self.smallest.map_or(step, |least| least.min(step)));
            }
        }
        self.last = Some(reading);
    }
}

/// Read a clock back to back; `None` when it cannot be read.
pub fn find(read: impl Fn() -> Option<u64>, limits: Limits) -> Option<Steps> {
    let mut steps = Steps::default();
    let begin = monotonic_ns();
    let mut looks: u128 = 0;
    loop {
        for _ in 0..READINGS_PER_LOOK {
            steps.add(read()?);
        }
        looks += 1;
        let passed = u128::from(monotonic_ns().saturating_sub(begin));
        let changed = steps.changes >= ENOUGH_CHANGES;
        let over = (changed && passed >= limits.usual.as_nanos())
            || passed >= limits.longest.as_nanos()
            // No reading takes less than a nanosecond: the bound where time itself stands still.
            || looks * u128::from(READINGS_PER_LOOK) >= limits.longest.as_nanos();
        if over {
            return Some(steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        usual: Duration::from_millis(1),
        longest: Duration::from_millis(20),
    };

    #[test]
    fn a_clock_that_ticks_and_jumps_back() {
        let reads = Cell::new(0);
        let read = || {
            reads.set(reads.get() + 1);
            // A tick of 10 every 5 readings, and 3 back once.
            Some(1000 + reads.get() / 5 * 10 - u64::from(reads.get() == 102) * 3)
        };
        let steps = find(read, LIMITS).unwrap();
        assert_eq!(steps.smallest, Some(3), "the return from the jump");
        assert_eq!((steps.backward.steps, steps.backward.largest), (1, 3));
        assert_eq!(steps.backward.readings, reads.get() - 1);
    }

    #[test]
    fn a_clock_that_stands_still_is_given_up() {
        let steps = find(|| Some(7), LIMITS).unwrap();
        assert_eq!((steps.smallest, steps.changes), (None, 0));
        assert_eq!(find(|| None, LIMITS), None);
    }

    proptest! {
        #[test]
        fn as_counted_over_all_pairs(readings in prop::collection::vec(0_u64..50, 2..100)) {
            let mut steps = Steps::default();
            for reading in &readings {
                steps.add(*reading);
            }
            let pairs: Vec<(u64, u64)> = readings.windows(2).map(|two| (two[0], two[1])).collect();
            let up = pairs.iter().filter(|(a, b)| b > a).map(|(a, b)| b - a);
            prop_assert_eq!(steps.smallest, up.clone().min());
            prop_assert_eq!(steps.changes, up.count() as u64);
            let down: Vec<u64> = pairs.iter().filter(|(a, b)| b < a).map(|(a, b)| a - b).collect();
            prop_assert_eq!(steps.backward.steps, down.len() as u64);
            prop_assert_eq!(steps.backward.largest, down.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(steps.backward.readings, pairs.len() as u64);
        }
    }
}
