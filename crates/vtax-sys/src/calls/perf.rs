//! Perf events.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_INSTRUCTIONS, PERF_TYPE_HARDWARE, perf_event_attr,
};

use super::descriptors::made;

/// Open a perf event for all that runs on a CPU.
///
/// Fails with the errno of the system call.
pub fn perf_event_open(
    attributes: &mut perf_event_attr,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    // perf_event_open(2): no process, and PERF_FLAG_FD_CLOEXEC.
    const EVERYBODY: libc::pid_t = -1;
    const CLOEXEC: u64 = 1 << 3;
    let group = group.map_or(-1, |group| group.as_raw_fd());
    // SAFETY: the attributes are a live structure whose size field tells its size.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(attributes, EVERYBODY, cpu, group, CLOEXEC) };
    made(fd.into())
}

/// Let a perf event and its group count, or stop it.
///
/// Fails with the errno of the system call.
pub fn perf_event_enable(event: BorrowedFd<'_>, enable: bool) -> Result<(), Errno> {
    let fd = event.as_raw_fd();
    // SAFETY: these requests take no pointer.
    let result = unsafe {
        if enable {
            perf_event_open_sys::ioctls::ENABLE(fd, 0)
        } else {
            perf_event_open_sys::ioctls::DISABLE(fd, 0)
        }
    };
    Errno::result(result).map(drop)
}

/// Try to count this process's instructions with a hardware counter, in user space.
///
/// Fails with the errno of the system call.
pub fn probe_instruction_counter() -> Result<(), Errno> {
    let mut attributes = perf_event_attr::default();
    attributes.type_ = PERF_TYPE_HARDWARE;
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0);
    attributes.config = u64::from(PERF_COUNT_HW_INSTRUCTIONS);
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    // SAFETY: the attributes are live and carry their own size.
    let number = unsafe { perf_event_open_sys::perf_event_open(&raw mut attributes, 0, -1, -1, 0) };
    made(number.into()).map(drop)
}
