//! What to record, and where.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::record::interval::Interval;
use crate::record::skew::Skew;
use crate::record::target::Target;

#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct RecordOptions {
    /// Length of an interval; `None`: a length that fits the machine.
    pub every: Option<Interval>,
    /// Names of events.
    pub events: String,
    /// Whose events are counted.
    pub target: Target,
    /// The most processes and threads of a command.
    pub processes: Option<u64>,
    /// End after this time.
    pub duration: Option<Duration>,
    /// Rows are written to the file after this time at the latest.
    pub flush: Duration,
    pub out: PathBuf,
    /// Rows of one CPU's ring; `None`: as many as fit the memory.
    pub ring_rows: Option<u32>,
    /// The pages in which guests publish counters, one for each.
    pub pages: Vec<PathBuf>,
    /// The guest's clock, measured by an exchange of messages with the guest.
    pub guest_clock: Option<Skew>,
    /// Counters of this machine's applications.
    pub applications: Option<Applications>,
    /// The most counters used at a time, including software events; `None`: all free counters.
    pub counters: Option<NonZeroUsize>,
    /// Count system calls by their stacks.
    pub call_sites: bool,
    /// Take the stack of what each row interrupts.
    pub stacks: bool,
    /// Take the vDSO away from the command's programs, so that clock readings are counted.
    pub without_vdso: bool,
    /// Measure how long the eBPF programs run.
    pub statistics: bool,
}

impl RecordOptions {
    /// Names of events, with the one that ends the intervals.
    pub fn all_events(&self) -> String {
        let reference = self.every.as_ref().and_then(Interval::event);
        reference.map_or_else(
            || self.events.clone(),
            |event| format!("{},{event}", self.events),
        )
    }
}

/// Which counters that applications register become columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applications {
    /// Counters that are registered when the recording begins.
    All,
    /// Counters with these whole names, whenever they are registered.
    Named(Vec<String>),
}
