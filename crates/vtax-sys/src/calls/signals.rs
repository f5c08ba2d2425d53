//! Actions of signals.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Give every signal its default action, as commands expect it, except SIGPIPE.
///
/// A parent that ignores signals (Python, nohup) would otherwise pass that on through exec.
/// SIGPIPE stays ignored in the agent: a closed channel is an error of `write` there, and
/// `Command` resets it in the child. SIGSEGV and SIGBUS keep the Rust runtime's handlers, which
/// exec removes.
pub fn reset_actions() {
    let kept = [libc::SIGPIPE, libc::SIGSEGV, libc::SIGBUS];
    for number in (1..=libc::SIGRTMAX()).filter(|number| !kept.contains(number)) {
        // SAFETY: SIG_DFL installs no code. Numbers that cannot be set (SIGKILL, the C library's
        // own) give an error, which changes nothing.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

extern "C" fn ask_to_end(_signal: c_int) {
    ASKED_TO_END.store(true, Ordering::Relaxed);
}

/// Let SIGINT and SIGTERM end a workload early but in order: it still checks and reports.
///
/// The second one ends the process.
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

/// Has a signal asked to end?
pub fn asked_to_end() -> bool {
    ASKED_TO_END.load(Ordering::Relaxed)
}
