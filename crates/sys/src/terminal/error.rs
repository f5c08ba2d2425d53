//! The error of a program of vtax: one line that names the subject, the reason and the remedy.

use crate::reason;
use nix::errno::Errno;
use thiserror::Error as ThisError;

/// Why a program ended without doing its work.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The user asked for something that is not possible; exit code 2.
    #[error("{thing}: {reason}; {remedy}")]
    Misuse {
        /// What the message is about.
        thing: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The machine lacks something, or refused something; exit code 1.
    #[error("{thing}: {reason}; {remedy}")]
    Failure {
        /// What the message is about.
        thing: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A signal asked the program to end; exit code 128 + signal, no message.
    #[error("ended by signal {0}")]
    Interrupted(i32),
}

impl Error {
    /// A misuse, from its three parts.
    pub fn misuse(thing: impl Into<String>, reason: impl ToString, remedy: &str) -> Self {
        Self::Misuse {
            thing: thing.into(),
            reason: reason.to_string(),
            remedy: remedy.into(),
        }
    }

    /// A failure, from its three parts.
    pub fn failure(thing: impl Into<String>, reason: impl ToString, remedy: &str) -> Self {
        Self::Failure {
            thing: thing.into(),
            reason: reason.to_string(),
            remedy: remedy.into(),
        }
    }

    /// A failed system call, in the kernel's own words.
    pub fn system(call: &str, errno: Errno, remedy: &str) -> Self {
        Self::failure(call, errno.desc(), remedy)
    }

    /// Like [`Error::system`], for an error of the standard library.
    pub fn input_output(thing: &str, error: &std::io::Error, remedy: &str) -> Self {
        Self::failure(thing, reason(error), remedy)
    }

    /// The process's exit code for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Misuse { .. } => 2,
            Self::Failure { .. } => 1,
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_and_an_exit_code() {
        let error = Error::misuse("--every 1s", "too long", "give less");
        assert_eq!(error.to_string(), "--every 1s: too long; give less");
        assert_eq!(error.exit_code(), 2);
        assert_eq!(Error::failure("a", "b", "c").exit_code(), 1);
        assert_eq!(Error::Interrupted(15).exit_code(), 143);
    }

    #[test]
    fn an_error_of_a_file_has_the_kernels_words() {
        let error = std::io::Error::from_raw_os_error(2);
        let error = Error::input_output("run.json", &error, "name a run");
        assert_eq!(
            error.to_string(),
            "run.json: No such file or directory; name a run"
        );
    }
}
