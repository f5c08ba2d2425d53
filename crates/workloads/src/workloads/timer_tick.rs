//! `timer-tick`: reads the clocks without a pause.

use nix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};

use crate::bound::Bound;
use crate::cast;
use crate::meter::Meter;
use crate::workload::{Description, Job, Outcome, Workload};
use vtax_sys::terminal::Error;

/// Reads between two looks at the bound.
const BATCH: u64 = 256;

#[derive(Debug)]
pub struct TimerTick;

static DESCRIPTION: Description = Description {
    name: "timer-tick",
    summary: "Reads CLOCK_MONOTONIC and CLOCK_REALTIME in a loop without sleeping, and looks for \
              steps backwards and gaps",
    stresses: "Nothing: it shows when the guest did not run and whether its clocks are continuous",
    unit: "reads of both clocks",
    default_bound: Bound::Count(10_000_000),
    options: &[],
};

impl Workload for TimerTick {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let mut clocks = Clocks::new()?;
        let meter = Meter::start();
        while let Some(reads) = job.limit.grant(BATCH) {
            (0..reads).try_for_each(|_| clocks.read())?;
        }
        Ok(Outcome {
            usage: meter.stop(),
            operations: job.limit.done(),
            checksum: None,
            verified: clocks.backsteps() == 0,
            details: clocks.details(),
        })
    }
}

#[derive(Debug)]
pub struct Clocks {
    monotonic: Gaps,
    realtime: Gaps,
}

impl Clocks {
    /// Read both clocks once.
    ///
    /// Fails when one of the clocks cannot be read.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            monotonic: Gaps::new(nanoseconds(ClockId::CLOCK_MONOTONIC)?),
            realtime: Gaps::new(nanoseconds(ClockId::CLOCK_REALTIME)?),
        })
    }

    /// Read both clocks, and compare with the last reading.
    ///
    /// Fails when one of the clocks cannot be read.
    pub fn read(&mut self) -> Result<(), Error> {
        self.monotonic.see(nanoseconds(ClockId::CLOCK_MONOTONIC)?);
        self.realtime.see(nanoseconds(ClockId::CLOCK_REALTIME)?);
        Ok(())
    }

    /// Steps back of both clocks together.
    pub fn backsteps(&self) -> u64 {
        self.monotonic.backsteps + self.realtime.backsteps
    }

    pub fn largest_gap_ms(&self) -> f64 {
        cast::milliseconds(self.monotonic.largest)
    }

    pub fn largest_realtime_gap_ms(&self) -> f64 {
        cast::milliseconds(self.realtime.largest)
    }

    fn details(&self) -> Map<String, Value> {
        let pairs = [
            ("monotonic_backsteps", self.monotonic.backsteps.into()),
            ("realtime_backsteps", self.realtime.backsteps.into()),
            ("largest_gap_ms", self.largest_gap_ms().into()),
            (
                "largest_realtime_gap_ms",
                self.largest_realtime_gap_ms().into(),
            ),
        ];
        pairs
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }
}

fn nanoseconds(clock: ClockId) -> Result<u64, Error> {
    let time = clock_gettime(clock)
        .map_err(|errno| Error::system("clock_gettime", errno, "report this as a bug"))?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec()).unwrap_or(0);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

/// One clock, in nanoseconds.
#[derive(Debug)]
struct Gaps {
    last: u64,
    largest: u64,
    backsteps: u64,
}

impl Gaps {
    fn new(first: u64) -> Self {
        Self {
            last: first,
            largest: 0,
            backsteps: 0,
        }
    }

    fn see(&mut self, now: u64) {
        match now.checked_sub(self.last) {
            Some(gap) => self.largest = self.largest.max(gap),
            None => self.backsteps += 1,
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_steps_backwards_are_seen() {
        let mut gaps = Gaps::new(100);
        for now in [100, 150, 149, 400, 399] {
            gaps.see(now);
        }
        assert_eq!((gaps.largest, gaps.backsteps), (251, 2));
    }

    #[test]
    fn these_clocks_go_forward() {
        // Taken before the first reading: a busy machine may stop this thread between the two.
        let begin = std::time::Instant::now();
        let mut clocks = Clocks::new().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        clocks.read().unwrap();
        assert_eq!(clocks.monotonic.backsteps, 0);
        assert!(clocks.largest_gap_ms() >= 20.0);
        assert!(clocks.largest_gap_ms() <= begin.elapsed().as_secs_f64() * 1e3);
    }
}
