//! Why a workload did not run: one line that names the thing, the reason and the remedy.

use nix::errno::Errno;
use thiserror::Error as ThisError;

/// Why a workload did not run.
#[derive(Debug, ThisError)]
pub enum Error {
    /// An option has a value that cannot be.
    #[error("{thing}: {reason}; {remedy}")]
    Misuse {
        /// What the message is about.
        thing: String,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The machine lacks something, or refused something.
    #[error("{thing}: {reason}; {remedy}")]
    Failure {
        /// What the message is about.
        thing: String,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        remedy: String,
    },
}

impl Error {
    /// A misuse from its three parts.
    pub fn misuse(thing: impl Into<String>, reason: impl ToString, remedy: &str) -> Self {
        Self::Misuse {
            thing: thing.into(),
            reason: reason.to_string(),
            remedy: remedy.into(),
        }
    }

    /// A failure from its three parts.
    pub fn failure(thing: impl Into<String>, reason: impl ToString, remedy: &str) -> Self {
        Self::Failure {
            thing: thing.into(),
            reason: reason.to_string(),
            remedy: remedy.into(),
        }
    }

    /// A system call that failed, in the kernel's own words.
    pub fn system(call: &str, errno: Errno, remedy: &str) -> Self {
        Self::failure(call, errno.desc(), remedy)
    }

    /// As [`Error::system`], for an error of the standard library.
    pub fn input_output(thing: &str, error: &std::io::Error, remedy: &str) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::system(thing, Errno::from_raw(number), remedy),
            None => Self::failure(thing, error, remedy),
        }
    }
}
