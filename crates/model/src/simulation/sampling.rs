//! How much of a long synthetic workload is followed.

use crate::error::ModelError;

/// Batches measured per phase.
pub(super) const BATCHES: usize = 8;

/// How much of each phase is followed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Instructions before the first batch, for caches and tables to fill.
    pub warm_instructions: f64,
    /// Instructions of each of the eight batches.
    pub batch_instructions: f64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            warm_instructions: 2e6,
            batch_instructions: 5e5,
        }
    }
}

impl Sampling {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        if !(0.0..=1e12).contains(&self.warm_instructions) {
            return Err(ModelError::field(
                "sampling.warm",
                "must be 0 to 1e12 instructions",
            ));
        }
        if !(1e4..=1e12).contains(&self.batch_instructions) {
            return Err(ModelError::field(
                "sampling.batch",
                "must be 1e4 to 1e12 instructions",
            ));
        }
        Ok(())
    }
}
