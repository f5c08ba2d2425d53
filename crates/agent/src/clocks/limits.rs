//! How long a part of the measurement takes.

use std::time::Duration;

/// Two limits, so that a busy machine costs time before it costs an answer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Stop here when enough was seen.
    pub usual: Duration,
    /// Stop here in any case.
    pub longest: Duration,
}
