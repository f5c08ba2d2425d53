//! Small workloads that a guest can run without any other file, each of which checks its own work.
//!
//! Each stresses address translation in a different way, so that the counters of a hypervisor can
//! be compared between nested and shadow paging. [`WORKLOADS`] is the table; [`run`] runs one and
//! reports. `docs/environments.md` describes them.

mod bound;
mod cast;
mod checksum;
mod job;
pub mod matrix;
mod message;
mod meter;
mod options;
mod pattern;
mod report;
pub mod stream;
mod walk;
mod workload;
mod workloads;

pub use bound::Bound;
pub use job::Context;
pub use meter::{Meter, Usage};
pub use options::{Kind, OptionSpec, Parameters, Value};
pub use report::{Report, run};
pub use vtax_sys::calls::children::Program;
pub use vtax_sys::calls::signals::end_on_signals;
pub use vtax_sys::terminal::Error;
pub use workload::{Description, Job, Outcome, Workload};
pub use workloads::{WORKLOADS, find};

pub use vtax_sys::calls::memory::PAGE_BYTES;
