//! Perf events.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_INSTRUCTIONS, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING,
    PERF_TYPE_HARDWARE, perf_event_attr,
};

use super::descriptors::made;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: u64 = 1 << 3;

/// Open a perf event for everything that runs on a CPU.
///
/// Fails with the errno of the system call.
pub fn perf_event_open(
    attributes: &mut perf_event_attr,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    // perf_event_open(2): no process.
    const EVERYBODY: libc::pid_t = -1;
    let group = group.map_or(-1, |group| group.as_raw_fd());
    // SAFETY: the attributes are a live structure whose size field tells its size.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(attributes, EVERYBODY, cpu, group, CLOEXEC) };
    made(fd.into())
}

/// Open a perf event for one thread, on whatever CPU it runs.
///
/// Fails with the errno of the system call.
pub fn perf_event_of_thread(
    attributes: &mut perf_event_attr,
    thread: Pid,
    group: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    // perf_event_open(2): any CPU.
    const ANY: libc::c_int = -1;
    let thread = thread.as_raw();
    let group = group.map_or(-1, |group| group.as_raw_fd());
    // SAFETY: the attributes are a live structure whose size field tells its size.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(attributes, thread, ANY, group, CLOEXEC) };
    made(fd.into())
}

/// Open an event (its type and number) for a process that has not yet begun its program. It counts
/// from exec on, also in all that the process starts, in user space and, unless `user_only`, in the
/// kernel.
///
/// Fails with the errno of the system call.
pub fn count_program(
    process: Pid,
    (kind, event): (u32, u32),
    user_only: bool,
) -> Result<OwnedFd, Errno> {
    let mut attributes = perf_event_attr::default();
    attributes.type_ = kind;
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0);
    attributes.config = u64::from(event);
    attributes.read_format =
        u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
    attributes.set_disabled(1);
    attributes.set_enable_on_exec(1);
    attributes.set_inherit(1);
    attributes.set_exclude_kernel(user_only.into());
    let pid = process.as_raw();
    // SAFETY: the attributes are live and carry their own size.
    let number =
        unsafe { perf_event_open_sys::perf_event_open(&raw mut attributes, pid, -1, -1, CLOEXEC) };
    made(number.into())
}

/// Start or stop a perf event and its group.
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

/// Have a tracepoint's event count only what a filter lets through (kernel: trace/events.rst, "Event
/// filtering").
///
/// Fails with the errno of the system call: EINVAL where the filter names an unknown field.
pub fn perf_event_filter(event: BorrowedFd<'_>, filter: &CStr) -> Result<(), Errno> {
    let text = filter.as_ptr().cast_mut();
    // SAFETY: the kernel copies a live string that ends with NUL, and writes nothing.
    let result = unsafe { perf_event_open_sys::ioctls::SET_FILTER(event.as_raw_fd(), text) };
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
