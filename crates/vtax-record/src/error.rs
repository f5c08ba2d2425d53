//! The error of a subcommand: one line that names the thing, the reason and the remedy.

use thiserror::Error;

/// Why a recording could not be made.
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
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Misuse { .. } => 2,
            Self::Failure { .. } => 1,
        }
    }
}
