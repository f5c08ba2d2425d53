//! What to record, and where to.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::interval::Interval;
use crate::skew::Skew;
use crate::target::Target;

/// What to record, and where to.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length of an interval; `None`: what fits the machine.
    pub every: Option<Interval>,
    /// Names of events.
    pub events: String,
    /// Whose events.
    pub target: Target,
    /// Most processes and threads of a command.
    pub processes: Option<u64>,
    /// End after this time.
    pub duration: Option<Duration>,
    /// Rows are in the file no later than this.
    pub flush: Duration,
    /// Folder of the files.
    pub out: PathBuf,
    /// Rows of one CPU's ring; `None`: what fits the memory.
    pub ring_rows: Option<u32>,
    /// The page in which a guest publishes counters.
    pub guest: Option<PathBuf>,
    /// The guest's clock, by an exchange of messages with it.
    pub guest_clock: Option<Skew>,
    /// Counters of this machine's applications.
    pub applications: Option<Applications>,
    /// Counters that are used at a time, by software events too; `None`: those that are free.
    pub counters: Option<NonZeroUsize>,
    /// Measure how long the eBPF programs run.
    pub statistics: bool,
}

/// Which counters that applications register become columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applications {
    /// Those that are registered when the recording begins.
    All,
    /// These whole names, whenever they are registered.
    Named(Vec<String>),
}
