//! The error of a subcommand: one line that names the thing, the reason and the remedy.

use nix::errno::Errno;
use thiserror::Error;

/// Why a subcommand ended without doing its work.
#[derive(Debug, Error)]
pub enum Error {
    /// The user asked for something that cannot be; exit code 2.
    #[error("{thing}: {reason}; {remedy}")]
    Misuse {
        /// What the message is about.
        thing: String,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The machine failed; exit code 1.
    #[error("{thing}: {reason}; {remedy}")]
    Failure {
        /// What the message is about.
        thing: String,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A signal asked the agent to end; exit code 128 + signal, no message.
    #[error("ended by signal {0}")]
    Interrupted(i32),
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

    /// The process's exit code for this error.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Misuse { .. } => 2,
            Self::Failure { .. } => 1,
            Self::Interrupted(signal) => 128 + signal,
        }
    }
}

/// The kernel's own words for an error, without the number that Rust appends.
pub fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}
