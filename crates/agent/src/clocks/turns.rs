//! Does a clock step back from one CPU to another?

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vtax_sys::calls::processor::finish_loads;
use vtax_sys::clock::monotonic_ns;

use crate::clocks::limits::Limits;
use crate::clocks::steps::Backward;
use vtax_sys::pinning::stay_on;

const MOST_TURNS: u64 = 10_000;
/// Fewer turns say little: the threads continue beyond the usual limit to get enough.
const ENOUGH_TURNS: u64 = 200;
/// Looks at the turn before the thread yields the CPU and checks the time.
const SPINS: u32 = 256;
const TURNS_PER_LOOK: u64 = 64;

/// What both threads see.
struct Table {
    /// Even: the first thread's turn.
    turn: AtomicU64,
    last: AtomicU64,
    usual_end_ns: u64,
    end_ns: u64,
}

/// Two threads, each pinned to one of the CPUs, read the clock in turn.
///
/// The error is the reason why nothing was compared.
pub fn pass(
    read: impl Fn() -> Option<u64> + Sync,
    cpus: [usize; 2],
    limits: Limits,
) -> Result<Backward, String> {
    let begin = monotonic_ns();
    let end =
        |limit: Duration| begin.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    let table = Table {
        turn: AtomicU64::new(0),
        last: AtomicU64::new(0),
        usual_end_ns: end(limits.usual),
        end_ns: end(limits.longest),
    };
    let play = |parity: u64, cpu: usize| -> Result<Backward, String> {
        stay_on(cpu)?;
        Ok(table.play(&read, parity))
    };
    let [first, second] = thread::scope(|scope| {
        let threads = [(0, cpus[0]), (1, cpus[1])].map(|(parity, cpu)| {
            let play = &play;
            thread::Builder::new().spawn_scoped(scope, move || play(parity, cpu))
        });
        threads.map(|thread| {
            let thread = thread.map_err(|error| format!("thread: {}", vtax_sys::reason(&error)))?;
            thread
                .join()
                .unwrap_or_else(|_| Err("a thread failed".into()))
        })
    });
    let seen = first?.and(second?);
    if seen.readings == 0 {
        let limit = limits.longest.as_millis();
        return Err(format!("no turn was passed between the CPUs in {limit} ms"));
    }
    Ok(seen)
}

impl Table {
    fn play(&self, read: impl Fn() -> Option<u64>, parity: u64) -> Backward {
        let mut seen = Backward::default();
        while let Some(turn) = self.wait_for(parity) {
            // Otherwise the counter could be read before the turn was.
            finish_loads();
            let Some(now) = read() else { break };
            let last = self.last.swap(now, Ordering::Relaxed);
            if turn > 0 {
                seen.compare(last, now);
            }
            self.turn.store(turn + 1, Ordering::Release);
        }
        seen
    }

    fn in_time(&self, turn: u64) -> bool {
        let enough = turn >= ENOUGH_TURNS;
        monotonic_ns()
            < if enough {
                self.usual_end_ns
            } else {
                self.end_ns
            }
    }

    /// `None` when the time is up or all turns are done.
    fn wait_for(&self, parity: u64) -> Option<u64> {
        loop {
            for _ in 0..SPINS {
                let turn = self.turn.load(Ordering::Acquire);
                if turn >= MOST_TURNS {
                    return None;
                }
                if turn % 2 == parity {
                    // Where each turn comes at once, the check below is never reached: look at the
                    // time here.
                    let look = turn % TURNS_PER_LOOK < 2;
                    return (!look || self.in_time(turn)).then_some(turn);
                }
                spin_loop();
            }
            if !self.in_time(self.turn.load(Ordering::Relaxed)) {
                return None;
            }
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_sys::pinning;

    const LONG: Limits = Limits {
        usual: Duration::from_secs(1),
        longest: Duration::from_secs(20),
    };

    const SHORT: Limits = Limits {
        usual: Duration::from_millis(1),
        longest: Duration::from_millis(2),
    };

    fn cpus() -> [usize; 2] {
        let cpus = pinning::cpus().unwrap();
        [cpus[0], cpus[cpus.len() - 1]]
    }

    #[test]
    fn a_clock_that_only_grows_never_steps_back() {
        let clock = AtomicU64::new(0);
        let read = || Some(clock.fetch_add(1, Ordering::SeqCst));
        let seen = pass(read, cpus(), LONG).unwrap();
        assert_eq!((seen.steps, seen.largest), (0, 0));
        assert!(seen.readings > 0);
    }

    #[test]
    fn a_clock_that_is_behind_in_every_second_turn_is_caught() {
        let clock = AtomicU64::new(1000);
        let read = || {
            let now = clock.fetch_add(1, Ordering::SeqCst);
            Some(now - now % 2 * 50)
        };
        let seen = pass(read, cpus(), LONG).unwrap();
        assert_eq!((seen.steps, seen.largest), (seen.readings.div_ceil(2), 49));
    }

    #[test]
    fn a_clock_that_cannot_be_read_gives_no_number() {
        let reason = pass(|| None, cpus(), SHORT).unwrap_err();
        assert!(reason.contains("no turn"), "{reason}");
    }
}
