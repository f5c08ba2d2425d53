//! Actions of signals.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Give every signal its default action, as commands expect, except SIGPIPE.
///
/// Otherwise a parent that ignores signals (Python, nohup) would pass that on through exec. Call it
/// before the first thread: the C library's own signals (32 to 34), which its `signal` refuses to
/// set, are among them. SIGPIPE stays ignored in the agent: a closed channel is an error of `write`
/// there, and `Command` resets it in the child. SIGSEGV and SIGBUS keep the Rust runtime's
/// handlers, which exec removes.
pub fn reset_actions() {
    let kept = [libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS];
    for number in (1..=libc::SIGRTMAX()).filter(|number| !kept.contains(number)) {
        set_default(number);
    }
}

/// The `struct sigaction` of `rt_sigaction(2)`: zeros mean `SIG_DFL`. Then the size of a signal set.
const DEFAULT_ACTION: [u64; 4] = [0; 4];
const SET_BYTES: usize = 8;

fn set_default(number: c_int) {
    let action = DEFAULT_ACTION.as_ptr();
    let none = std::ptr::null_mut::<u64>();
    // SAFETY: the kernel reads a static; SIG_DFL installs no code. SIGKILL and SIGSTOP give an
    // error, which changes nothing.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, number, action, none, SET_BYTES) };
}

static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

extern "C" fn ask_to_end(_signal: c_int) {
    ASKED_TO_END.store(true, Ordering::Relaxed);
}

/// Let SIGINT and SIGTERM end a workload early but in order: it still checks its results and
/// reports.
///
/// A second signal ends the process.
///
/// Fails with the errno of the system call.
pub fn end_on_signals() -> Result<(), Errno> {
    let flags = SaFlags::SA_RESTART | SaFlags::SA_RESETHAND;
    let action = SigAction::new(SigHandler::Handler(ask_to_end), flags, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic variable.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Has a signal asked the workload to end?
pub fn asked_to_end() -> bool {
    ASKED_TO_END.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_of_the_c_library_has_its_default_action_again() {
        let number = 32;
        let mut action = [libc::SIG_IGN as u64, 0, 0, 0];
        let change = |new: *const u64, old: *mut u64| {
            // SAFETY: both pointers are null or point to four words of this frame, as the kernel
            // expects them.
            unsafe { libc::syscall(libc::SYS_rt_sigaction, number, new, old, SET_BYTES) }
        };
        assert_eq!(change(action.as_ptr(), std::ptr::null_mut()), 0);
        set_default(number);
        assert_eq!(change(std::ptr::null(), action.as_mut_ptr()), 0);
        assert_eq!(action[0], libc::SIG_DFL as u64);
    }
}
