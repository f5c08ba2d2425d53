//! Times work in ticks of the counter, in nanoseconds and in cycles of the core.

use std::time::Duration;

use vtax_sys::calls::processor::time_stamp;
use vtax_sys::clock::monotonic_ns;

use crate::clocks::moment::Moment;
use crate::clocks::source::TIMER;
use crate::probe::registers::{ADDS, adds};

/// The least length of a timing: reading the counter (20 ns) is then a thousandth of it, and most
/// timings end before an interrupt comes (one every 1 to 10 ms).
const TIMING: Duration = Duration::from_micros(20);
/// How long the counter's rate is measured: the error of the readings is then 1 in 10^5.
const CALIBRATION: Duration = Duration::from_millis(10);
/// The limit of rounds, for work that never takes a tick.
const MOST_ROUNDS: u64 = 1 << 32;
/// Timings from which one is chosen.
const TRIALS: usize = 3;

#[derive(Debug, Clone, Copy)]
pub struct Meter {
    hz: f64,
    timing_ticks: f64,
    add_rounds: u64,
}

impl Meter {
    /// A meter of this machine; the error says why its counter cannot time.
    pub fn calibrate() -> Result<Self, String> {
        let _ = TIMER.read();
        let begin = Moment::now(TIMER);
        let end = monotonic_ns().saturating_add(nanoseconds(CALIBRATION));
        while monotonic_ns() < end {}
        let hz = begin.rate_hz(Moment::now(TIMER))?;
        let timing_ticks = hz * TIMING.as_secs_f64();
        if timing_ticks < 100.0 {
            return Err(format!(
                "the counter runs at {hz:.0} Hz: too coarse to time"
            ));
        }
        let mut meter = Self {
            hz,
            timing_ticks,
            add_rounds: 1,
        };
        meter.add_rounds = meter.rounds(adds);
        Ok(meter)
    }

    pub fn hz(&self) -> f64 {
        self.hz
    }

    pub fn nanoseconds(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.hz
    }

    /// The number of rounds that makes the work long enough to time.
    pub fn rounds(&self, mut work: impl FnMut(u64)) -> u64 {
        let mut rounds = 1;
        while rounds < MOST_ROUNDS && fewest(rounds, &mut work) < self.timing_ticks {
            rounds *= 2;
        }
        rounds
    }

    /// Ticks of one cycle of the core now, by dependent additions.
    pub fn cycle_ticks(&self) -> f64 {
        fewest(self.add_rounds, adds) / (float(self.add_rounds) * f64::from(ADDS))
    }
}

/// Ticks of the shortest of three timings: disturbances make work longer.
pub fn fewest(rounds: u64, mut work: impl FnMut(u64)) -> f64 {
    let timings = (0..TRIALS).map(|_| ticks(rounds, &mut work));
    timings.fold(f64::INFINITY, f64::min)
}

/// Ticks of the median of three timings, for work that itself varies.
pub fn usual(rounds: u64, mut work: impl FnMut(u64)) -> f64 {
    let mut timings = [(); TRIALS].map(|()| ticks(rounds, &mut work));
    timings.sort_by(f64::total_cmp);
    timings[TRIALS / 2]
}

/// Ticks of one timing, for long work.
pub fn once(work: impl FnOnce()) -> f64 {
    let begin = time_stamp();
    work();
    float(time_stamp().saturating_sub(begin))
}

fn ticks(rounds: u64, work: &mut impl FnMut(u64)) -> f64 {
    once(|| work(rounds))
}

/// When to stop, and how often to repeat until then.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// The most runs.
    pub runs: usize,
    end_ns: u64,
}

impl Budget {
    /// A budget that begins at this moment.
    pub fn new(runs: usize, time: Duration) -> Self {
        Self {
            runs,
            end_ns: monotonic_ns().saturating_add(nanoseconds(time)),
        }
    }

    pub fn in_time(&self) -> bool {
        monotonic_ns() < self.end_ns
    }

    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(monotonic_ns()))
    }

    /// The answers of all runs that fit in the time.
    pub fn repeat<T>(&self, mut run: impl FnMut() -> T) -> Vec<T> {
        let runs = (0..self.runs).take_while(|_| self.in_time());
        runs.map(|_| run()).collect()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A count as a floating-point number, for a rate.
#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_work_takes_longer() {
        let meter = Meter::calibrate().unwrap();
        let rounds = meter.rounds(adds);
        assert!(rounds >= 1);
        // The shortest of many: a busy machine disturbs some.
        let best = |rounds| {
            (0..50)
                .map(|_| fewest(rounds, adds))
                .fold(f64::INFINITY, f64::min)
        };
        assert!(best(4 * rounds) > 2.0 * best(rounds));
        assert!(meter.cycle_ticks() > 0.0);
    }

    #[test]
    fn runs_end_with_their_time() {
        let budget = Budget::new(1_000_000, Duration::from_millis(5));
        let runs = budget.repeat(|| std::thread::sleep(Duration::from_millis(1)));
        assert!(runs.len() <= 5, "{}", runs.len());
        assert_eq!(
            Budget::new(3, Duration::from_secs(60)).repeat(|| 1).len(),
            3
        );
        assert!(!budget.in_time() && budget.left().is_zero());
    }
}
