//! The system calls that need `unsafe`. This module makes no decisions.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::switch::error::Failure;

pub use vtax_sys::calls::descriptors::{own, pidfd_getfd, pidfd_kill, pidfd_open};
pub use vtax_sys::calls::network::{set_tap_persistent, tap};

/// Everything that a child needs between fork and exec. It is made before the fork, because a child
/// of a process with threads must not allocate.
#[derive(Debug)]
pub struct Child {
    /// The program; `None`: the child keeps its descriptors open until it is killed.
    pub program: Option<CString>,
    /// Its arguments, including its name.
    pub arguments: Vec<CString>,
    pub environment: Vec<CString>,
    pub folder: CString,
    /// Descriptors and the numbers that they get; all sources have higher numbers than all targets.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// User and group.
    pub user: (u32, u32),
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Resource limits: number, soft, hard.
    pub limits: Vec<(u32, u64, u64)>,
    pub mask: u32,
}

/// A process that was forked and has not yet executed its program.
#[derive(Debug)]
pub struct Waiting {
    pub pid: i32,
    gate: OwnedFd,
}

impl Waiting {
    /// Let the process run its program.
    ///
    /// Fails with the errno of the system call.
    pub fn go(self) -> Result<(), Errno> {
        nix::unistd::write(&self.gate, b"g").map(drop)
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let pointers = strings.iter().map(|string| string.as_ptr());
    pointers.chain([std::ptr::null()]).collect()
}

/// Make a process that waits at a gate and then runs its program.
///
/// Like a daemon, the process is a child of init and outlives this program. It ends by itself when
/// the gate is dropped unopened.
///
/// Fails with the errno of the system call.
pub fn make(child: &Child) -> Result<Waiting, Errno> {
    let (gate_out, gate_in) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let (number_out, number_in) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let arguments = pointers(&child.arguments);
    let environment = pointers(&child.environment);
    // SAFETY: the child and the grandchild make only async-signal-safe calls and do not allocate.
    let first = Errno::result(unsafe { libc::fork() })?;
    if first == 0 {
        // SAFETY: as above.
        let second = unsafe { libc::fork() };
        if second == 0 {
            let ends = (gate_out.as_raw_fd(), gate_in.as_raw_fd());
            // SAFETY: `run` is meant for this child.
            unsafe { run(child, &arguments, &environment, ends) };
        }
        // SAFETY: the number is written whole, from a live variable; then the process ends.
        unsafe {
            libc::write(number_in.as_raw_fd(), (&raw const second).cast(), 4);
            libc::_exit(0);
        }
    }
    drop((number_in, gate_out));
    let mut bytes = [0; 4];
    let count = nix::unistd::read(&number_out, &mut bytes)?;
    // The process in between has nothing left to do.
    nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(first), None)?;
    let pid = i32::from_ne_bytes(bytes);
    if count != bytes.len() || pid <= 0 {
        return Err(Errno::EAGAIN);
    }
    Ok(Waiting { pid, gate: gate_in })
}

/// What the new process does; never returns.
///
/// # Safety
/// Call this only in a fresh child: it changes the whole process. The pointer lists end with null.
unsafe fn run(
    child: &Child,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    (gate_out, gate_in): (RawFd, RawFd),
) -> ! {
    let mut letter = 0_u8;
    // SAFETY: only async-signal-safe calls on numbers and on memory made before the fork.
    unsafe {
        libc::close(gate_in);
        if libc::read(gate_out, (&raw mut letter).cast(), 1) != 1 {
            libc::_exit(125);
        }
        libc::setsid();
        libc::umask(child.mask);
        // What this program itself inherited is not meant for the guest.
        let first = libc::c_uint::from(3_u8);
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        for (from, to) in &child.descriptors {
            if libc::dup2(from.as_raw_fd(), *to) < 0 {
                libc::_exit(124);
            }
        }
        for number in 1..=libc::SIGRTMAX() {
            libc::signal(number, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for (resource, soft, hard) in &child.limits {
            let limit = libc::rlimit {
                rlim_cur: *soft,
                rlim_max: *hard,
            };
            libc::setrlimit(*resource, &raw const limit);
        }
        let (user, group) = child.user;
        if libc::chdir(child.folder.as_ptr()) < 0
            || libc::setgroups(child.groups.len(), child.groups.as_ptr()) < 0
            || libc::setgid(group) < 0
            || libc::setuid(user) < 0
        {
            libc::_exit(123);
        }
        let Some(program) = &child.program else {
            close_all_but(&child.descriptors);
            loop {
                libc::pause();
            }
        };
        libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        libc::_exit(127)
    }
}

/// Close all descriptors except the targets, which are in ascending order.
///
/// # Safety
/// Call this only in a child that uses no other descriptor.
unsafe fn close_all_but(kept: &[(OwnedFd, RawFd)]) {
    let mut from: libc::c_uint = 0;
    for (_, number) in kept {
        let number = number.unsigned_abs();
        if number > from {
            // SAFETY: as for this function.
            unsafe { libc::syscall(libc::SYS_close_range, from, number - 1, 0) };
        }
        from = number + 1;
    }
    // SAFETY: as for this function.
    unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) };
}

/// Wait until a process has ended.
pub(crate) fn wait_for_end(process: &OwnedFd, patience: Duration) -> Result<(), Failure> {
    let mut entries = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    match poll(&mut entries, limit) {
        Ok(0) => Err(Failure::Late(
            "the old QEMU's end".into(),
            patience.as_secs(),
        )),
        Ok(_) => Ok(()),
        Err(errno) => Err(Failure::Call("poll".into(), errno)),
    }
}
