//! How many hardware counters are really free.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::perf;

/// How long a pinned event is watched before it is believed to have a counter.
const WATCH: Duration = Duration::from_millis(2);

/// Of these events, opened pinned one after the other, how many have a counter at the same time.
///
/// Other users of the PMU, the NMI watchdog and guests' vPMUs may hold counters: the number that the
/// processor has says little. A pinned event without a counter opens without an error but cannot be
/// read. `open` opens event number i, pinned and counting.
///
/// Fails when `open` fails, or when an event cannot be read for another reason.
pub fn free(
    events: usize,
    mut open: impl FnMut(usize) -> Result<OwnedFd, Errno>,
) -> Result<usize, Errno> {
    let mut held = Vec::new();
    for event in 0..events {
        held.push(open(event)?);
        let begin = Instant::now();
        while begin.elapsed() < WATCH {
            std::hint::spin_loop();
        }
        let mut all = true;
        for counter in &held {
            all &= perf::read(counter)?.is_some_and(|reading| reading.running_ns > 0);
        }
        if !all {
            return Ok(event);
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Request;
    use crate::sources::Exclude;
    use perf_event_open_sys::bindings as sys;
    use std::os::fd::AsFd;

    /// Software events need no counter, so all of them are free; a file that cannot be read as a
    /// counter stands for a pinned event that found none.
    #[test]
    fn probing_ends_at_the_first_event_without_a_counter() {
        let clock = || {
            let request = Request {
                kind: sys::PERF_TYPE_SOFTWARE,
                config: u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
                period: None,
                exclude: Exclude::default(),
                pinned: true,
            };
            let event = perf::open(request, 0, None)?;
            vtax_sys::calls::perf::perf_event_enable(event.as_fd(), true)?;
            Ok(event)
        };
        if matches!(clock(), Err(Errno::EACCES | Errno::EPERM)) {
            eprintln!("skipped: kernel.perf_event_paranoid forbids perf events");
            return;
        }
        assert_eq!(free(3, |_| clock()), Ok(3));
        let empty = || Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        assert_eq!(
            free(5, |event| if event < 2 { clock() } else { empty() }),
            Ok(2)
        );
    }
}
