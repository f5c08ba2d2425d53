//! Waiting for a traced thread, what it stopped for, and letting it go on: nix knows neither
//! real-time signals nor `PTRACE_LISTEN`.

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// How a traced thread goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// To its next system call, with this signal; 0: none.
    ToCall(i32),
    /// To what it starts next, with this signal; 0: none.
    ToStart(i32),
    /// Stopped, as all of its process, until a SIGCONT.
    Stopped,
}

/// A stop at a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Number and arguments of the call that begins.
    Entry(u64, [u64; 6]),
    /// What the call returns.
    Exit(i64),
}

/// The next child or traced thread that stops or ends, and its status.
///
/// Fails with the errno of the system call.
pub fn wait() -> Result<(Pid, i32), Errno> {
    let mut status = 0;
    // SAFETY: the kernel writes the status to a variable that lives through the call.
    let found = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
    Errno::result(found).map(|pid| (Pid::from_raw(pid), status))
}

/// Let a stopped thread go on.
///
/// Fails with ESRCH when it has been killed meanwhile.
pub fn resume(thread: Pid, on: On) -> Result<(), Errno> {
    let (request, signal) = match on {
        On::ToCall(signal) => (libc::PTRACE_SYSCALL, signal),
        On::ToStart(signal) => (libc::PTRACE_CONT, signal),
        On::Stopped => (libc::PTRACE_LISTEN, 0),
    };
    // SAFETY: both requests take numbers, and touch no memory of this process.
    let done = unsafe { libc::ptrace(request, thread.as_raw(), 0, libc::c_long::from(signal)) };
    Errno::result(done).map(drop)
}

/// The system call at which a thread stopped, and the architecture whose numbers it has; `None`: it
/// has been killed meanwhile.
pub fn call(thread: Pid) -> Option<(Call, u32)> {
    let info = ptrace::syscall_info(thread).ok()?;
    let call = match info.op {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says that the kernel has filled this part.
            let entry = unsafe { info.u.entry };
            Call::Entry(entry.nr, entry.args)
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: `op` says that the kernel has filled this part.
            Call::Exit(unsafe { info.u.exit }.sval)
        }
        _ => return None,
    };
    Some((call, info.arch))
}
