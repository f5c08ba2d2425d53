//! Children: made, set up, reaped.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{ForkResult, Pid, fork};

/// What a command uses, of itself and of the descendants it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user space.
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
///
/// Fails with the errno of the system call.
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

/// Start a child that sets itself up, waits for a byte on `gate` and then becomes `argv`.
///
/// When that fails it writes the error's number, as 4 bytes, to `report`, which closes otherwise.
/// Both descriptors must be closed on exec. The child dies with this process.
pub fn fork_gated(
    argv: &[CString],
    gate: BorrowedFd<'_>,
    report: BorrowedFd<'_>,
    setup: &ChildSetup,
) -> Result<Pid, Errno> {
    let parent = nix::unistd::getpid();
    // SAFETY: this process has one thread, and the child makes only system calls before exec.
    match unsafe { fork()? } {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let error = match exec_after(argv, gate, parent, setup) {
                Ok(never) => match never {},
                Err(errno) => errno,
            };
            let _ = nix::unistd::write(report, &(error as i32).to_ne_bytes());
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(127) }
        }
    }
}

fn exec_after(
    argv: &[CString],
    gate: BorrowedFd<'_>,
    parent: Pid,
    setup: &ChildSetup,
) -> Result<std::convert::Infallible, Errno> {
    set_up_child(parent, setup)?;
    // SAFETY: SIG_DFL installs no code; the Rust runtime ignores SIGPIPE, commands do not.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut byte = [0];
    if nix::unistd::read(gate, &mut byte)? == 0 {
        return Err(Errno::ECANCELED);
    }
    let program = argv.first().ok_or(Errno::ENOENT)?;
    nix::unistd::execvp(program, argv)
}

/// A program that gets one more argument each time that it is started.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its file.
    pub path: CString,
    /// All arguments but the last, its own name included.
    pub arguments: Vec<CString>,
}

/// Start a program with fork and exec; `last` is its last argument.
///
/// `std::process::Command` would use vfork, which does not copy page tables.
///
/// Fails with the errno of the system call.
pub fn fork_and_exec(program: &Program, last: &CStr) -> Result<Pid, Errno> {
    let arguments = program.arguments.iter().map(|argument| argument.as_ptr());
    let arguments: Vec<_> = arguments.chain([last.as_ptr(), ptr::null()]).collect();
    // SAFETY: the child makes two async-signal-safe calls only and allocates nothing.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // SAFETY: the path and the arguments are live C strings, the list ends with a null
            // pointer; _exit returns to nobody.
            unsafe {
                libc::execv(program.path.as_ptr(), arguments.as_ptr());
                libc::_exit(127)
            }
        }
    }
}

/// Run `work` in a child that dies with this process; its exit code is what `work` returns.
///
/// `work` must not take locks that another thread may hold: printing, for example. The agent has
/// one thread; tests have several.
///
/// Fails with the errno of fork.
pub fn fork_and_run(work: impl FnOnce() -> u8) -> Result<Pid, Errno> {
    let parent = nix::unistd::getpid();
    // SAFETY: the child runs `work`, which takes no locks (see above), and leaves by _exit
    // without the destructors and exit handlers of its parent.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).is_ok();
            let code = if tied && nix::unistd::getppid() == parent {
                work()
            } else {
                // The parent died before its death could be announced.
                127
            };
            // SAFETY: returns to nobody.
            unsafe { libc::_exit(c_int::from(code)) }
        }
    }
}
