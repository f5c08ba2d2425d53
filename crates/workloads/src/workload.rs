//! What a workload is.

use serde_json::{Map, Value};

use crate::bound::{Bound, Limit};
use crate::job::Context;
use crate::meter::Usage;
use crate::options::{OptionSpec, Parameters};
use vtax_sys::terminal::Error;

/// A workload that checks its own work.
pub trait Workload: Sync {
    fn description(&self) -> &'static Description;

    /// Work until `job.limit` grants no more.
    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error>;
}

/// What a user can know about a workload before it runs.
#[derive(Debug)]
pub struct Description {
    /// The word on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// What it stresses in address translation, in one sentence.
    pub stresses: &'static str,
    /// The operation that is counted.
    pub unit: &'static str,
    /// The default bound; small enough for an emulated guest.
    pub default_bound: Bound,
    /// Its options besides those that bound it.
    pub options: &'static [OptionSpec],
}

/// One run of a workload.
pub struct Job<'a> {
    pub parameters: &'a Parameters,
    /// When the run ends.
    pub limit: Limit,
    /// What the program around it provides.
    pub context: &'a Context<'a>,
}

#[derive(Debug)]
pub struct Outcome {
    /// What the operations used, without preparation and without the final checks.
    pub usage: Usage,
    /// How many operations were done.
    pub operations: u64,
    /// The checksum of the data that was worked on; `None` where there is no data that a seed
    /// determines.
    pub checksum: Option<u64>,
    /// Was all the work right?
    pub verified: bool,
    /// Further details; their names carry units.
    pub details: Map<String, Value>,
}
