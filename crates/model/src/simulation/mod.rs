//! Simulating a workload under several ways of translation at once.
//!
//! [`simulate`] follows every reference that its source has; of a trace with some intervals only, it
//! estimates the rest, with a stated error. [`simulate_sampled`] measures each phase of a synthetic
//! workload in batches and computes the whole run from them, with a stated error. The policies
//! see the same readings in both.

mod entries;
mod intervals;
mod lane;
mod oracle;
mod outcome;
mod phases;
mod recorder;
mod replay;
mod sampled;
mod sampling;
mod setup;
mod strata;
mod timeline;
mod whole;

pub use entries::count_entries;
pub use outcome::{ModeOutcome, Outcome, Progress, StateRow, SwitchRow, WindowRow};
pub use sampled::simulate_sampled;
pub use sampling::Sampling;
pub use setup::{Choice, Setup};
pub use whole::simulate;

#[cfg(test)]
mod tests;
