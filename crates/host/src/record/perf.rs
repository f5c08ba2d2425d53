//! perf events: the reference, whose overflow makes a row, and counters that a row reads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::time::ClockId;
use perf_event_open_sys::bindings as perf;

use vtax_sys::calls::perf::{perf_event_enable, perf_event_open};

/// How long an enabled event may take to begin to count; with a free counter it counts at once.
const SETTLES: Duration = Duration::from_millis(2);

/// The levels at which a perf event does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "one for each bit of perf_event_attr"
)]
pub struct Exclude {
    /// Programs.
    pub user: bool,
    pub kernel: bool,
    pub host: bool,
    pub guest: bool,
}

/// A perf event and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Request {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`, and `config2`: more of what a PMU's own events are.
    pub config1: u64,
    pub config2: u64,
    /// Overflow after this many; `None`: the event only counts.
    pub period: Option<u64>,
    /// The levels that are left out.
    pub exclude: Exclude,
    /// The event must have a counter all the time, or else it fails.
    pub pinned: bool,
}

/// Open an event for everything that runs on a CPU, disabled at first; a member of a group follows
/// its leader.
///
/// Fails with the errno of the system call.
pub fn open(request: Request, cpu: u32, leader: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
    let mut attributes = perf::perf_event_attr::default();
    attributes.type_ = request.kind;
    // Fields beyond those of this version are not used, so older kernels accept the structure too.
    attributes.size = perf::PERF_ATTR_SIZE_VER5;
    attributes.config = request.config;
    attributes.__bindgen_anon_3.config1 = request.config1;
    attributes.__bindgen_anon_4.config2 = request.config2;
    // perf_event_open(2): PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING.
    attributes.read_format = 3;
    if let Some(period) = request.period {
        attributes.__bindgen_anon_1.sample_period = period;
        // The kernel's records of the event use the clock of the rows.
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
/// The kernel refuses a group that does not fit an empty PMU. A group that fits opens without an
/// error, but cannot be read when it is enabled while others hold the counters.
///
/// Fails with the errno of the system call when an event cannot be opened for another reason.
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
            // x86 and arm64; kernels before 3.16 report that no counter is left.
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

/// Does an enabled event have a counter?
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

/// A reading of a counter: the count, and how long the counter was enabled and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    pub count: u64,
    /// How long the counter was enabled, in nanoseconds.
    pub enabled_ns: u64,
    /// How long the counter counted, in nanoseconds.
    pub running_ns: u64,
}

/// Read a counter; `None` when the event is pinned and lost its hardware counter.
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

    /// Stands for a pinned event that found no counter: it reads nothing.
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
