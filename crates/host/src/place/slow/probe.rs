//! Measures the speed that a way of slowing really leaves, with a loop that repeats the same work.

use std::hint::black_box;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use vtax_sys::calls::scheduling::{set_affinity, set_nice};
use vtax_sys::cgroup::quota::QuotaGroup;

/// Odd, so that the median is one of the pairs.
const PAIRS: usize = 9;
/// Many periods of the slowing means.
const SLOW: Duration = Duration::from_millis(100);
const FULL: Duration = Duration::from_millis(40);
/// The wait after a change, which may take a millisecond to count; and the slowing means may have
/// saved up some time.
const SETTLE: Duration = Duration::from_millis(10);
/// Shorter than what the scheduler gives to a thread at a time.
const PIECE: Duration = Duration::from_millis(2);
const PIECES: usize = 20;
const ROUNDS: u64 = 1000;

/// A speed in percent of full speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Obtained {
    /// The median of the pairs.
    pub percent: f64,
    /// The median of all such pairs lies between this and `high` with 96 % confidence: the second
    /// lowest and second highest of nine (order statistics of the binomial distribution).
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

/// How a way of slowing slows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slowness {
    /// All the time alike: of several short pieces the fastest counts, in which no other program
    /// took the CPU.
    Even,
    /// By standing still from time to time: the average over many periods counts.
    Uneven,
}

/// The ratio of the speed after `slow` to the speed after `full`. The measuring thread itself calls
/// each in turn, on one CPU if one is named. A control group (with the kernel's autogroups a nice
/// value means nothing to other sessions) and its nice value give this thread priority over all
/// others, because CPU time that others take is no slowness.
///
/// Fails as `full` or `slow` does.
pub fn compare(
    group: Option<&QuotaGroup>,
    cpu: Option<usize>,
    slowness: Slowness,
    full: impl Fn() -> Result<(), String> + Send,
    slow: impl Fn() -> Result<(), String> + Send,
) -> Result<Obtained, String> {
    let measure = move || {
        let _ = set_nice(0, -20);
        if let Some(group) = group {
            group.take(0)?;
        }
        if let Some(cpu) = cpu {
            let pinned = set_affinity(0, &[cpu]);
            pinned.map_err(|errno| format!("measuring on CPU {cpu}: {}", errno.desc()))?;
        }
        let mut ratios = Vec::with_capacity(PAIRS);
        for _ in 0..PAIRS {
            full()?;
            sleep(SETTLE);
            let fast = rate(FULL, slowness);
            slow()?;
            sleep(SETTLE);
            ratios.push(rate(SLOW, slowness) / fast * 100.0);
        }
        full()?;
        Ok(interval(ratios))
    };
    let done = scope(|scope| scope.spawn(measure).join());
    done.unwrap_or_else(|_| Err("the measuring thread ended".into()))
}

fn interval(mut ratios: Vec<f64>) -> Obtained {
    ratios.sort_by(f64::total_cmp);
    let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
    Obtained {
        percent: at(PAIRS / 2),
        low: at(1),
        high: at(PAIRS - 2),
    }
}

/// Rounds per second of real time, of a loop that uses no memory; over `time` where the slowness is
/// uneven.
fn rate(time: Duration, slowness: Slowness) -> f64 {
    match slowness {
        Slowness::Even => (0..PIECES).map(|_| piece(PIECE)).fold(0.0, f64::max),
        Slowness::Uneven => piece(time),
    }
}

fn piece(time: Duration) -> f64 {
    let begin = Instant::now();
    let mut rounds = 0.0;
    let mut state = 1_u64;
    while begin.elapsed() < time {
        for _ in 0..ROUNDS {
            state = black_box(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
        rounds += 1.0;
    }
    rounds / begin.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_around_the_median() {
        let ratios = vec![50.0, 10.0, 51.0, 52.0, 90.0, 49.0, 48.0, 53.0, 47.0];
        let found = interval(ratios);
        assert_eq!((found.low, found.percent, found.high), (47.0, 50.0, 53.0));
    }

    #[test]
    fn a_refusal_is_passed_on() {
        let refused = || Err("no".to_owned());
        assert_eq!(
            compare(None, None, Slowness::Uneven, || Ok(()), refused),
            Err("no".into())
        );
    }
}
