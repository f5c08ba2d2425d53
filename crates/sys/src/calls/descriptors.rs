//! Making, inheriting and copying descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// Own a descriptor that a call has just made, such as fcntl's copy.
pub fn own(number: RawFd) -> OwnedFd {
    // SAFETY: the caller got it from the kernel and hands it over once.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// The descriptor that a call returned, or its error.
pub(super) fn made(result: libc::c_long) -> Result<OwnedFd, Errno> {
    let number = RawFd::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Borrow a descriptor of `owner`'s for as long as `owner` lives.
pub fn borrow<T>(fd: RawFd, _owner: &T) -> BorrowedFd<'_> {
    // SAFETY: callers pass a descriptor that `owner` keeps open.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Take a descriptor that the parent left open for this process.
///
/// Fails with the errno of the system call.
pub fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD and F_SETFD only look at the number; it is checked before it is owned.
    Errno::result(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: as above. Commands must not inherit the channel.
    Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open, and the caller hands it over once, at the start.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A descriptor that names a process (`pidfd_open(2)`); readable when the process has ended.
///
/// Fails with the errno of the system call.
pub fn pidfd_open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes numbers only.
    made(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// A copy of another process's descriptor (`pidfd_getfd(2)`), closed on exec; both share the file
/// position.
///
/// Fails with the errno of the system call.
pub fn pidfd_getfd(process: BorrowedFd<'_>, number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes numbers only.
    made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

/// Send a signal to the process that a descriptor names.
///
/// Fails with the errno of the system call.
pub fn pidfd_kill(process: BorrowedFd<'_>, signal: i32) -> Result<(), Errno> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no siginfo is passed; the rest are numbers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            info,
            0,
        )
    };
    Errno::result(result).map(drop)
}

/// Try to lock an open file (flock(2)); the lock lasts as long as the descriptor.
///
/// Fails with the errno of the system call.
pub fn try_lock(file: impl AsFd) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the call takes two numbers.
    Errno::result(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}
