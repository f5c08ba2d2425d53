//! Making, setting up and reaping children.

use std::ffi::{CStr, CString, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{ForkResult, Pid, fork};

/// What a command uses, together with the descendants that it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user space.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Largest resident set of any one process.
    pub max_rss_bytes: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Context switches because the process waited.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Subtract CPU time that is not the command's: first from the kernel's time, then the rest
    /// from the user's.
    pub fn subtract(&mut self, time: Duration) {
        let rest = time.saturating_sub(self.system);
        self.system = self.system.saturating_sub(time);
        self.user = self.user.saturating_sub(rest);
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It called exit with this code.
    Exited(i32),
    /// This signal killed it.
    Signaled(i32),
}

/// Wait until a child has ended, and reap it with its usage.
///
/// Fails with the errno of the system call.
pub fn wait_with_usage(child: Pid) -> Result<(End, Usage), Errno> {
    let mut status: c_int = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers point to live variables of the types that wait4 fills.
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

/// A program with its arguments and its whole environment, ready for exec.
#[derive(Debug)]
pub struct Image {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Image {
    /// A program; it is looked for in this process's `PATH` if there is no slash in its name.
    pub fn new(program: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Self {
        Self {
            program,
            arguments,
            environment,
        }
    }
}

/// What is set up in a child between fork and exec.
#[derive(Debug, Default)]
pub struct ChildSetup {
    /// Largest file that the child may write, in bytes; `None`: the agent's limit.
    pub file_limit_bytes: Option<u64>,
    /// Processes that the child's user may have; `None`: the agent's limit.
    pub user_processes: Option<u64>,
    /// Each `cgroup.procs` that the child joins.
    pub cgroup_procs: Vec<RawFd>,
    /// The mount namespace that the child moves to; `None`: its parent's.
    pub mounts: Option<RawFd>,
    /// `None`: the surroundings of its parent.
    pub apart: Option<Apart>,
}

/// The settings of a child in its own process group, with another folder and other files.
#[derive(Debug)]
pub struct Apart {
    pub folder: CString,
    /// Standard input, output and error. None of them is a standard descriptor of the parent.
    pub files: [OwnedFd; 3],
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
    if let Some(mounts) = setup.mounts {
        // SAFETY: the descriptor is only borrowed, and was open in the parent at the fork.
        Errno::result(unsafe { libc::setns(mounts, libc::CLONE_NEWNS) })?;
    }
    if let Some(apart) = &setup.apart {
        let own = Pid::from_raw(0);
        nix::unistd::setpgid(own, own)?;
        nix::unistd::chdir(apart.folder.as_c_str())?;
        let [input, output, error] = &apart.files;
        nix::unistd::dup2_stdin(input)?;
        nix::unistd::dup2_stdout(output)?;
        nix::unistd::dup2_stderr(error)?;
    }
    // SAFETY: SIG_DFL installs no code; the Rust runtime ignores SIGPIPE, commands do not.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Writing 0 moves the writer (kernel docs, cgroup-v1 2.2 and cgroup-v2 "cgroup.procs").
fn join_cgroup(procs: RawFd) -> Result<(), Errno> {
    // SAFETY: the buffer is a static of one byte; the descriptor is only borrowed.
    let written = unsafe { libc::write(procs, b"0".as_ptr().cast(), 1) };
    Errno::result(written).map(drop)
}

/// Start a child that sets itself up, writes 0 to `report`, waits for a byte on `gate` (a pipe's
/// two ends) and then becomes `image`.
///
/// When one of these steps fails, the child writes the error's number instead; numbers have 4
/// bytes. The descriptors must be marked close-on-exec. The child has no signal blocked, and dies
/// with this process, which must have one thread or be a test.
///
/// Fails with the errno of fork.
pub fn fork_gated(
    image: &Image,
    gate: (BorrowedFd<'_>, BorrowedFd<'_>),
    report: BorrowedFd<'_>,
    setup: &ChildSetup,
) -> Result<Pid, Errno> {
    let parent = nix::unistd::getpid();
    // Before the fork: the child allocates nothing.
    let (arguments, environment) = (pointers(&image.arguments), pointers(&image.environment));
    // SAFETY: the child makes only async-signal-safe calls (the error values are plain numbers).
    match unsafe { fork()? } {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let failed = if let Err(errno) = set_up_and_wait(parent, setup, gate, report) {
                errno
            } else {
                // SAFETY: the program and the lists' strings live in `image`; each list ends with
                // a null pointer.
                unsafe {
                    libc::execvpe(
                        image.program.as_ptr(),
                        arguments.as_ptr(),
                        environment.as_ptr(),
                    )
                };
                Errno::last()
            };
            let _ = nix::unistd::write(report, &(failed as i32).to_ne_bytes());
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(127) }
        }
    }
}

fn set_up_and_wait(
    parent: Pid,
    setup: &ChildSetup,
    (gate, other_end): (BorrowedFd<'_>, BorrowedFd<'_>),
    report: BorrowedFd<'_>,
) -> Result<(), Errno> {
    // The child's own copy: while it is open, the child would never see the parent's end close.
    // SAFETY: the child does not use the descriptor again, and its owner is in the parent.
    unsafe { libc::close(other_end.as_raw_fd()) };
    set_up_child(parent, setup)?;
    nix::unistd::write(report, &0_i32.to_ne_bytes())?;
    let mut byte = [0];
    match nix::unistd::read(gate, &mut byte)? {
        0 => Err(Errno::ECANCELED),
        _ => Ok(()),
    }
}

/// The pointers of a list, as exec takes them.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let strings = strings.iter().map(|string| string.as_ptr());
    strings.chain([ptr::null()]).collect()
}

/// A program that gets one more argument at each start.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: CString,
    /// All arguments but the last, including the program's name.
    pub arguments: Vec<CString>,
}

/// Start a program with fork and exec; `last` is its last argument.
///
/// `std::process::Command` would use vfork, which does not copy page tables.
///
/// Fails with the errno of the system call.
pub fn fork_and_exec(program: &Program, last: &CStr) -> Result<Pid, Errno> {
    let mut arguments = pointers(&program.arguments);
    arguments.insert(program.arguments.len(), last.as_ptr());
    // SAFETY: the child makes only two async-signal-safe calls and allocates nothing.
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
                // The parent died before the death signal was set.
                127
            };
            // SAFETY: returns to nobody.
            unsafe { libc::_exit(c_int::from(code)) }
        }
    }
}
