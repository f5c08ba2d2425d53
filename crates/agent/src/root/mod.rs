//! The root of a guest: what the kernel's command line asks for, and the mounts that make it.
//!
//! `init` makes the root; the request `enter` of `serve` mounts what was deferred.

mod dev_nodes;
mod disk;
pub mod mounts;
pub mod parameters;
pub(crate) mod vsock;

use nix::errno::Errno;
use thiserror::Error;

/// Which step failed, and why.
#[derive(Debug, Error)]
#[error("init: {step}: {reason}")]
pub struct InitError {
    step: String,
    reason: String,
}

impl InitError {
    pub(crate) fn new(step: impl Into<String>, reason: impl ToString) -> Self {
        Self {
            step: step.into(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn errno(step: impl Into<String>, errno: Errno) -> Self {
        Self::new(step, errno.desc())
    }
}
