//! Timings that are long enough for any clock.
//!
//! On one thread the CPU time is also taken, so that time that other programs take on a busy
//! machine does not count for the candidate. The clock of CPU time is coarse in some environments
//! (gVisor's has steps of 10 ms), and is not used there.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::search::trial::{Measured, Rejected};

/// The shortest timing: far above the cost and the step of a virtual machine's clock.
const SHORTEST_S: f64 = 4e-3;
const MOST_TIMES: f64 = 1e6;
/// How the clock of CPU time is tested: in this many tries of this length, one must be without an
/// interruption.
const TRIES: usize = 50;
const TRY_S: f64 = 2e-4;
/// By how much the two clocks may differ in that test.
const DIFFERENCE: f64 = 0.05;

/// Times one problem, several times in a row if it is short.
pub struct Stopwatch {
    operations: f64,
    times: Option<u32>,
    by_cpu: bool,
}

impl Stopwatch {
    /// A stopwatch for a problem of `operations` floating-point operations on `threads` threads.
    pub fn new(operations: f64, threads: usize) -> Self {
        Self {
            operations,
            times: None,
            by_cpu: threads == 1 && (0..TRIES).any(|_| is_fine()),
        }
    }

    /// Time the problem. The first call decides how often later calls run the problem.
    pub fn time(
        &mut self,
        mut problem: impl FnMut() -> Result<(), Error>,
    ) -> Result<Measured, Rejected> {
        let begin = Instant::now();
        let mut run = |times: u32| {
            let begin = Both::now();
            (0..times).try_for_each(|_| problem()).map_err(rejected)?;
            Ok(begin.elapsed())
        };
        let times = match self.times {
            Some(times) => times,
            None => enough(run(1)?.0),
        };
        self.times = Some(times);
        let (wall, cpu) = run(times)?;
        let operations = self.operations * f64::from(times);
        let gflops = |seconds: f64| operations / seconds.max(f64::MIN_POSITIVE) / 1e9;
        Ok(Measured {
            gflops: gflops(wall),
            gflops_on_cpu: gflops(cpu.filter(|cpu| self.by_cpu && *cpu > 0.0).unwrap_or(wall)),
            seconds: begin.elapsed().as_secs_f64(),
        })
    }
}

/// A moment by both clocks.
struct Both(Instant, Option<Duration>);

impl Both {
    fn now() -> Self {
        Self(Instant::now(), on_cpu())
    }

    /// Seconds since that moment, and how many of them this thread was on a CPU.
    fn elapsed(&self) -> (f64, Option<f64>) {
        let wall = self.0.elapsed().as_secs_f64();
        let cpu = on_cpu().zip(self.1);
        let cpu = cpu.map(|(now, then)| now.saturating_sub(then).as_secs_f64());
        (wall, cpu)
    }
}

fn on_cpu() -> Option<Duration> {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok();
    now.map(Duration::from)
}

/// Do both clocks agree for a thread that only reads them?
fn is_fine() -> bool {
    let begin = Both::now();
    loop {
        let (wall, cpu) = begin.elapsed();
        if wall >= TRY_S {
            return cpu.is_some_and(|cpu| (cpu - wall).abs() <= DIFFERENCE * wall);
        }
    }
}

fn enough(seconds: f64) -> u32 {
    let times = (SHORTEST_S / seconds.max(1e-9))
        .ceil()
        .clamp(1.0, MOST_TIMES);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 1 to a million"
    )]
    let times = times as u32;
    times
}

/// The reason in the form in which the search reports it.
pub fn rejected(error: Error) -> Rejected {
    Rejected(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_problems_are_repeated_and_failures_reported() {
        assert_eq!([1.0, 4e-3, 1e-3, 0.0].map(enough), [1, 1, 4, 1_000_000]);
        let mut watch = Stopwatch::new(1e6, 1);
        let mut count = 0_u32;
        let measured = watch.time(|| {
            count += 1;
            Ok(())
        });
        let measured = measured.unwrap();
        assert!(measured.gflops > 0.0 && measured.gflops_on_cpu > 0.0 && count > 2);
        let failed = watch.time(|| Err(Error::Encode("x".into())));
        assert!(failed.unwrap_err().0.contains("cannot encode"));
    }
}
