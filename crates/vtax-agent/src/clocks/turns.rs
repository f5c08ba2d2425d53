//! Does a clock step back from one CPU to another?

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vtax_sys::calls::processor::finish_loads;
use vtax_sys::clock::monotonic_ns;

use crate::clocks::place::stay_on;
use crate::clocks::steps::Backward;

const MOST_TURNS: u64 = 10_000;
/// Looks at the turn before the CPU is offered to others and the time is looked at.
const SPINS: u32 = 256;
const TURNS_PER_LOOK: u64 = 64;

/// What both threads see.
struct Table {
    /// Even: the first thread's turn.
    turn: AtomicU64,
    last: AtomicU64,
    end_ns: u64,
}

/// Two threads, each pinned to one of the CPUs, read the clock in turn.
///
/// The error is the reason why nothing was compared.
pub fn pass(
    read: impl Fn() -> Option<u64> + Sync,
    cpus: [usize; 2],
    limit: Duration,
) -> Result<Backward, String> {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let table = Table {
        turn: AtomicU64::new(0),
        last: AtomicU64::new(0),
        end_ns: monotonic_ns().saturating_add(limit_ns),
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
        let limit = limit.as_millis();
        return Err(format!("no turn was passed between the CPUs in {limit} ms"));
    }
    Ok(seen)
}

impl Table {
    fn play(&self, read: impl Fn() -> Option<u64>, parity: u64) -> Backward {
        let mut seen = Backward::default();
        while let Some(turn) = self.wait_for(parity) {
            // Else the counter could be read before the turn was.
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

    fn in_time(&self) -> bool {
        monotonic_ns() < self.end_ns
    }

    /// `None` when the time or the turns are over.
    fn wait_for(&self, parity: u64) -> Option<u64> {
        loop {
            for _ in 0..SPINS {
                let turn = self.turn.load(Ordering::Acquire);
                if turn >= MOST_TURNS {
                    return None;
                }
                if turn % 2 == parity {
                    // Where turns come at once, the loop below is never left.
                    let look = turn % TURNS_PER_LOOK < 2;
                    return (!look || self.in_time()).then_some(turn);
                }
                spin_loop();
            }
            if !self.in_time() {
                return None;
            }
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::place;

    const LONG: Duration = Duration::from_secs(20);

    fn cpus() -> [usize; 2] {
        let cpus = place::cpus().unwrap();
        [cpus[0], cpus[cpus.len() - 1]]
    }

    #[test]
    fn a_clock_that_only_grows_never_steps_back() {
        let clock = AtomicU64::new(0);
        let read = || Some(clock.fetch_add(1, Ordering::SeqCst));
        let seen = pass(read, cpus(), LONG).unwrap();
        assert_eq!((seen.readings, seen.steps), (MOST_TURNS - 1, 0));
    }

    #[test]
    fn a_clock_that_is_behind_in_every_second_turn_is_caught() {
        let clock = AtomicU64::new(1000);
        let read = || {
            let now = clock.fetch_add(1, Ordering::SeqCst);
            Some(now - now % 2 * 50)
        };
        let seen = pass(read, cpus(), LONG).unwrap();
        assert_eq!((seen.steps, seen.largest), (MOST_TURNS / 2, 49));
    }

    #[test]
    fn a_clock_that_cannot_be_read_gives_no_number() {
        let reason = pass(|| None, cpus(), Duration::from_millis(1)).unwrap_err();
        assert!(reason.contains("no turn"), "{reason}");
    }
}
