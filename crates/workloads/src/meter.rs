//! Measures what the measured part of a workload uses.

use std::time::{Duration, Instant};

use nix::sys::resource::{Usage as Resources, UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// What this process and the children that it waited for used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Time by `CLOCK_MONOTONIC`.
    pub wall: Duration,
    /// CPU time in user space.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
}

/// Measures from its start to its stop.
#[derive(Debug)]
pub struct Meter {
    begin: Instant,
    before: Usage,
}

impl Meter {
    pub fn start() -> Self {
        Self {
            before: used(),
            begin: Instant::now(),
        }
    }

    /// End; returns what was used since the start.
    pub fn stop(self) -> Usage {
        let wall = self.begin.elapsed();
        let after = used();
        Usage {
            wall,
            user: after.user.saturating_sub(self.before.user),
            system: after.system.saturating_sub(self.before.system),
            minor_faults: after.minor_faults.saturating_sub(self.before.minor_faults),
            voluntary_switches: after
                .voluntary_switches
                .saturating_sub(self.before.voluntary_switches),
        }
    }
}

fn used() -> Usage {
    // getrusage fails only for a wrong first argument or pointer (getrusage(2)).
    let parts = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(getrusage);
    parts
        .into_iter()
        .flatten()
        .fold(Usage::default(), |sum, part| add(sum, &part))
}

fn add(sum: Usage, part: &Resources) -> Usage {
    let count = |number| u64::try_from(number).unwrap_or(0);
    Usage {
        wall: sum.wall,
        user: sum.user + duration(part.user_time()),
        system: sum.system + duration(part.system_time()),
        minor_faults: sum.minor_faults + count(part.minor_page_faults()),
        voluntary_switches: sum.voluntary_switches + count(part.voluntary_context_switches()),
    }
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
