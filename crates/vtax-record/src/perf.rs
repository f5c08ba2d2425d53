//! perf events: the reference, whose overflow makes a row, and counters that a row reads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use perf_event_open_sys::bindings as perf;

use crate::sources::Exclude;
use vtax_sys::calls::perf::perf_event_open;

/// Which event, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
