//! The system calls that need `unsafe`. Nothing here decides anything.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::Pid;
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_INSTRUCTIONS, PERF_TYPE_HARDWARE, perf_event_attr,
};

/// What a command uses, of itself and of the descendants it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Largest resident set of one process.
    pub max_rss_bytes: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Context switches by waiting.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It called exit with this code.
    Exited(i32),
    /// This signal killed it.
    Signaled(i32),
}

/// Reap one child that has ended, with its usage; does not return before it ended.
pub fn wait_with_usage(child: Pid) -> Result<(End, Usage), Errno> {
    let mut status: c_int = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live variables of the type that wait4 fills.
        let result = unsafe { libc::wait4(child.as_raw(), &raw mut status, 0, usage.as_mut_ptr()) };
        match Errno::result(result) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: zeroed is a valid rusage, and wait4 has filled it.
    let usage = unsafe { usage.assume_init() };
    let end = if libc::WIFEXITED(status) {
        End::Exited(libc::WEXITSTATUS(status))
    } else {
        End::Signaled(libc::WTERMSIG(status))
    };
    Ok((end, convert(&usage)))
}

fn convert(usage: &libc::rusage) -> Usage {
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Usage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        // Linux counts it in KiB (getrusage(2)).
        max_rss_bytes: count(usage.ru_maxrss) * 1024,
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// What is set in a child between fork and exec.
#[derive(Debug, Clone, Default)]
pub struct ChildSetup {
    /// Largest file that it may write, in bytes; `None`: as the agent.
    pub file_limit_bytes: Option<u64>,
    /// Processes that its user may have; `None`: as the agent.
    pub user_processes: Option<u64>,
    /// Each `cgroup.procs` that it joins.
    pub cgroup_procs: Vec<RawFd>,
}

/// Make `command`'s child set itself up before exec.
///
/// The child dies with the agent, has no signal blocked, and keeps `setup`. The descriptors in
/// `setup` must stay open until the command is spawned.
pub fn prepare(command: &mut Command, setup: ChildSetup) {
    let parent = nix::unistd::getpid();
    // SAFETY: the closure makes only async-signal-safe calls and does not allocate (the error
    // values are plain numbers); it runs in a fork of a process that has one thread.
    unsafe {
        command.pre_exec(move || set_up_child(parent, &setup).map_err(io::Error::from));
    }
}

fn set_up_child(parent: Pid, setup: &ChildSetup) -> Result<(), Errno> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid() != parent {
        // The agent died before the line above: its death signal will never come.
        return Err(Errno::ESRCH);
    }
    for procs in &setup.cgroup_procs {
        join_cgroup(*procs)?;
    }
    for (resource, limit) in [
        (Resource::RLIMIT_FSIZE, setup.file_limit_bytes),
        (Resource::RLIMIT_NPROC, setup.user_processes),
    ] {
        if let Some(limit) = limit {
            setrlimit(resource, limit, limit)?;
        }
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Writing 0 moves the writer (kernel docs, cgroup-v1 2.2 and cgroup-v2 "cgroup.procs").
fn join_cgroup(procs: RawFd) -> Result<(), Errno> {
    // SAFETY: the buffer is a static of one byte; the descriptor is only borrowed.
    let written = unsafe { libc::write(procs, b"0".as_ptr().cast(), 1) };
    Errno::result(written).map(drop)
}

/// Give every signal its default action, as commands expect it, except SIGPIPE.
///
/// A parent that ignores signals (Python, nohup) would otherwise pass that on through exec.
/// SIGPIPE stays ignored in the agent: a closed channel is an error of `write` there, and
/// `Command` resets it in the child. SIGSEGV and SIGBUS keep the Rust runtime's handlers, which
/// exec removes.
pub fn reset_signal_actions() {
    let kept = [libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS];
    for number in (1..=libc::SIGRTMAX()).filter(|number| !kept.contains(number)) {
        // SAFETY: SIG_DFL installs no code. Numbers that cannot be set (SIGKILL, the C library's
        // own) give an error, which changes nothing.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Take a descriptor that the parent left open for this process.
pub fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD and F_SETFD only look at the number; it is checked before it is owned.
    Errno::result(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: as above. Commands must not get the channel.
    Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open, and the caller hands it over once, at the start.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A copy of descriptor `number` of process `pid` (`pidfd_getfd`(2)); both share its position.
pub fn copy_of_descriptor(pid: i32, number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes no pointer.
    let process = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let process = RawFd::try_from(process).map_err(|_| Errno::EBADF)?;
    // SAFETY: the descriptor is new and ours.
    let process = unsafe { OwnedFd::from_raw_fd(process) };
    // SAFETY: pidfd_getfd takes no pointer.
    let copy = Errno::result(unsafe {
        libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0)
    })?;
    let copy = RawFd::try_from(copy).map_err(|_| Errno::EBADF)?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Bring a network interface up (SIOCGIFFLAGS, SIOCSIFFLAGS; netdevice(7)).
pub fn interface_up(name: &str) -> Result<(), Errno> {
    // SAFETY: all-zero is a valid ifreq (plain data).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: socket takes no pointer.
    let number = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let number = Errno::result(number)?;
    // SAFETY: the descriptor is new and ours.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    // SAFETY: the request is a live ifreq, as both calls take.
    Errno::result(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request)
    })?;
    // SAFETY: SIOCGIFFLAGS has filled this member of the union; IFF_UP is bit 0.
    unsafe { request.ifr_ifru.ifru_flags |= 1 };
    // SAFETY: as for SIOCGIFFLAGS.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(set).map(drop)
}

/// Try to count this process's instructions with a hardware counter, in user mode.
pub fn probe_instruction_counter() -> Result<(), Errno> {
    let mut attributes = perf_event_attr::default();
    attributes.type_ = PERF_TYPE_HARDWARE;
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0);
    attributes.config = u64::from(PERF_COUNT_HW_INSTRUCTIONS);
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    // SAFETY: the attributes are live and carry their own size.
    let number = unsafe { perf_event_open_sys::perf_event_open(&raw mut attributes, 0, -1, -1, 0) };
    let number = Errno::result(number)?;
    // SAFETY: the descriptor is new and ours; dropping closes it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(())
}

/// The four registers that CPUID answers for a leaf: EAX, EBX, ECX, EDX.
///
/// Not to be called in user-mode Linux, where the instruction answers for the host.
pub fn cpuid(leaf: u32) -> [u32; 4] {
    #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
    // SAFETY: every x86-64 CPU has CPUID.
    let answer = unsafe { std::arch::x86_64::__cpuid(leaf) };
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

/// `CLOCK_MONOTONIC` in seconds.
pub fn monotonic_seconds() -> f64 {
    // SAFETY: all-zero is a valid timespec.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live timespec. Linux has this clock, so there is no error.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos).as_secs_f64()
}

/// Clock ticks per second of the times in `/proc/stat` (`CLK_TCK`).
pub fn clock_ticks_per_second() -> f64 {
    // SAFETY: sysconf takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 {
        f64::from(i32::try_from(ticks).unwrap_or(100))
    } else {
        100.0
    }
}

/// Nanoseconds of a clock tick of `/proc/stat`.
pub fn tick_ns() -> u64 {
    // SAFETY: sysconf takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let ticks = u64::try_from(ticks).unwrap_or(0);
    1_000_000_000 / if ticks > 0 { ticks } else { 100 }
}

/// Processor time of this process, in nanoseconds.
pub fn process_time_ns() -> u64 {
    // SAFETY: all-zero is a valid timespec.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live timespec. Linux has this clock, so there is no error.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
