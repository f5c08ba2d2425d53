//! perf events: the reference, whose overflow makes a row, and counters that a row reads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::time::ClockId;
use perf_event_open_sys::bindings as perf;

use vtax_sys::calls::perf::{perf_event_enable, perf_event_open};

/// How long an enabled event may take to begin to count; with a counter it counts at once.
const SETTLES: Duration = Duration::from_millis(2);

/// Levels at which a perf event does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "one for each bit of perf_event_attr"
)]
pub struct Exclude {
    /// Programs.
    pub user: bool,
    /// The kernel.
    pub kernel: bool,
    /// The host.
    pub host: bool,
    /// Guests.
    pub guest: bool,
}

/// Which event, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Request {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// Overflow after so many; `None`: it only counts.
    pub period: Option<u64>,
    /// What of it is left out.
    pub exclude: Exclude,
    /// It must have a counter all the time, or else it fails.
    pub pinned: bool,
}

/// Open an event of all that runs on a CPU, not counting yet; a member of a group follows its leader.
///
/// Fails with the errno of the system call.
pub fn open(request: Request, cpu: u32, leader: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
    let mut attributes = perf::perf_event_attr::default();
    attributes.type_ = request.kind;
    // Fields after those of this version are not used, so older kernels take it too.
    attributes.size = perf::PERF_ATTR_SIZE_VER5;
    attributes.config = request.config;
    // perf_event_open(2): PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING.
    attributes.read_format = 3;
    if let Some(period) = request.period {
        attributes.__bindgen_anon_1.sample_period = period;
        // What the kernel says of the event has the clock of the rows.
        attributes.set_use_clockid(1);
        attributes.clockid = ClockId::CLOCK_MONOTONIC.as_raw();
    }
    attributes.set_disabled(u64::from(leader.is_none()));
    attributes.set_pinned(u64::from(request.pinned && leader.is_none()));
    attributes.set_exclude_user(u64::from(request.exclude.user));
    attributes.set_exclude_kernel(u64::from(request.exclude.kernel));
    attributes.set_exclude_host(u64::from(request.exclude.host));
    attributes.set_exclude_guest(u64::from(request.exclude.guest));
    let cpu = i32::try_from(cpu).map_err(|_| Errno::EINVAL)?;
    perf_event_open(&mut attributes, cpu, leader)
}

/// Let events count together, pinned as one group; `None` when they have no counters at the same
/// time.
///
/// The kernel refuses a group that does not fit an empty PMU. One that fits opens without an error,
/// but cannot be read when it is enabled and others hold the counters.
///
/// Fails with the errno of the system call when an event cannot be had for another reason.
pub fn hold(group: &[Request], cpu: u32) -> Result<Option<Vec<OwnedFd>>, Errno> {
    let mut held: Vec<OwnedFd> = Vec::with_capacity(group.len());
    for request in group {
        let request = Request {
            period: None,
            pinned: true,
            ..*request
        };
        match open(request, cpu, held.first().map(OwnedFd::as_fd)) {
            Ok(event) => held.push(event),
            // x86 and arm64; kernels before 3.16 say that no counter is left.
            Err(Errno::EINVAL | Errno::ENOSPC) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
    let Some(leader) = held.first() else {
        return Ok(Some(held));
    };
    perf_event_enable(leader.as_fd(), true)?;
    Ok(counts(leader)?.then_some(held))
}

/// Has an event that was enabled a counter?
fn counts(event: impl AsFd) -> Result<bool, Errno> {
    let begin = Instant::now();
    while begin.elapsed() < SETTLES {
        match read(&event)? {
            None => return Ok(false),
            Some(reading) if reading.running_ns > 0 => return Ok(true),
            Some(_) => std::hint::spin_loop(),
        }
    }
    Ok(false)
}

/// What a counter says: the count, and for how long it was enabled and did count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// The count.
    pub count: u64,
    /// Nanoseconds.
    pub enabled_ns: u64,
    /// Nanoseconds.
    pub running_ns: u64,
}

/// Read a counter; `None` when it is pinned and lost its hardware counter.
///
/// Fails with the errno of the system call.
pub fn read(event: impl AsFd) -> Result<Option<Reading>, Errno> {
    let mut bytes = [0_u8; 24];
    let length = nix::unistd::read(event, &mut bytes)?;
    if length < bytes.len() {
        return Ok(None);
    }
    let (words, _) = bytes.as_chunks::<8>();
    let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
    Ok(Some(Reading {
        count: word(0),
        enabled_ns: word(1),
        running_ns: word(2),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf::{PERF_COUNT_SW_CPU_CLOCK, PERF_TYPE_SOFTWARE};

    /// Stands for a pinned event that found no counter: nothing can be read from it.
    fn empty() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn an_event_counts_when_it_is_enabled_and_has_a_counter() {
        assert_eq!(counts(empty()), Ok(false));
        let request = Request {
            kind: PERF_TYPE_SOFTWARE,
            config: u64::from(PERF_COUNT_SW_CPU_CLOCK),
            ..Request::default()
        };
        match hold(&[request], 0) {
            Err(Errno::EACCES | Errno::EPERM) => {
                eprintln!("skipped: kernel.perf_event_paranoid forbids perf events");
                return;
            }
            held => assert!(held.unwrap().is_some()),
        }
        let disabled = open(request, 0, None).unwrap();
        assert_eq!(counts(&disabled), Ok(false));
    }
}
