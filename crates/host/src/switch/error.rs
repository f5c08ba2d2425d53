//! Why a switch was refused or failed: one line with the subject, the reason and the remedy.

use std::path::PathBuf;

use nix::errno::Errno;
use thiserror::Error;

/// Why a switch or a recovery did not do its work.
#[derive(Debug, Error)]
pub enum SwitchError {
    /// Nothing was touched: this host or this guest cannot be switched as it is.
    #[error("{thing}: {reason}; {remedy}")]
    Refused {
        /// What the message is about.
        thing: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A step failed; the old mode was restored and every guest runs on.
    #[error("{step}: {reason}; the host is in {mode} paging as before and every guest runs on")]
    Undone {
        /// The step that failed, as in the fault list.
        step: String,
        /// Why it failed.
        reason: String,
        /// The mode that was restored.
        mode: vtax_sys::kvm::PagingMode,
    },
    /// A step failed, and going back failed too; the saved states are kept.
    #[error(
        "{step}: {reason}; going back failed too: {undo}; run `vtax paging recover`, or: {by_hand}"
    )]
    Stranded {
        /// The step that failed, as in the fault list.
        step: String,
        /// Why the step failed.
        reason: String,
        /// Why going back failed.
        undo: String,
        /// Shell commands that resume the guests from their saved states.
        by_hand: String,
    },
}

impl SwitchError {
    /// A refusal from its three parts.
    pub fn refused(thing: impl Into<String>, reason: impl ToString, remedy: &str) -> Self {
        Self::Refused {
            thing: thing.into(),
            reason: reason.to_string(),
            remedy: remedy.into(),
        }
    }
}

/// Why one step failed; the caller says which step it was.
#[derive(Debug, Error)]
pub enum Failure {
    /// A system call failed.
    #[error("{0}: {reason}", reason = .1.desc())]
    Call(String, Errno),
    /// A file cannot be read or written.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    File(PathBuf, std::io::Error),
    /// QEMU's control socket failed.
    #[error("{0}: {1}")]
    Qmp(String, crate::switch::qmp::QmpError),
    /// A wait took too long.
    #[error("{0} did not come in {1} s")]
    Late(String, u64),
    /// Any other reason, in words.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Name the system call, or what an errno is about.
    pub fn call(what: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let what = what.into();
        move |errno| Self::Call(what, errno)
    }

    /// Name the file that an error is about.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::File(path, error)
    }
}
