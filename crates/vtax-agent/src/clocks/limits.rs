//! How long a part of the measurement goes on.

use std::time::Duration;

/// Two limits, so that a busy machine costs time before it costs an answer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Where enough was seen.
    pub usual: Duration,
    /// In any case.
    pub longest: Duration,
}
