//! Small workloads that a guest can run without any other file, each with a check of its own work.
//!
//! Each stresses address translation in another way, so that the counters of a hypervisor can be
//! compared between nested and shadow paging. [`WORKLOADS`] is the table; [`run`] runs one and
//! reports. `docs/guest-workloads.md` describes them.

mod bound;
mod cast;
mod checksum;
mod job;
mod message;
mod meter;
mod options;
mod pattern;
mod report;
mod sys;
mod walk;
mod workload;
mod workloads;

pub use bound::Bound;
pub use job::{Context, Program};
pub use meter::Usage;
pub use options::{Kind, OptionSpec, Parameters, Value};
pub use report::{Report, run};
pub use sys::end_on_signals;
pub use vtax_error::Error;
pub use workload::{Description, Job, Outcome, Workload};
pub use workloads::{WORKLOADS, find};

/// Bytes of a page: the only size of x86-64 that is not a huge page.
pub const PAGE_BYTES: usize = 4096;
