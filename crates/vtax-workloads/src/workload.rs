//! What a workload is.

use serde_json::{Map, Value};

use crate::bound::{Bound, Limit};
use crate::job::Context;
use crate::meter::Usage;
use crate::options::{OptionSpec, Parameters};
use vtax_cli::Error;

/// A workload that checks its own work.
pub trait Workload: Sync {
    /// What it is.
    fn description(&self) -> &'static Description;

    /// Work until `job.limit` grants no more.
    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error>;
}

/// What a user can know of a workload before it runs.
#[derive(Debug)]
pub struct Description {
    /// The word on the command line.
    pub name: &'static str,
    /// What it does, one sentence.
    pub summary: &'static str,
    /// What it stresses in address translation, one sentence.
    pub stresses: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The bound when none is given; small enough for an emulated guest.
    pub default_bound: Bound,
    /// Its options beside those that bound it.
    pub options: &'static [OptionSpec],
}

/// One run of a workload.
pub struct Job<'a> {
    /// The values of its options.
    pub parameters: &'a Parameters,
    /// When it ends.
    pub limit: Limit,
    /// What the program around it provides.
    pub context: &'a Context<'a>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What the operations used, without preparation and without checks afterwards.
    pub usage: Usage,
    /// How many operations were done.
    pub operations: u64,
    /// Of the data that was worked on; `None` where there is no data that a seed determines.
    pub checksum: Option<u64>,
    /// Was all of the work right?
    pub verified: bool,
    /// What else there is to tell; names carry units.
    pub details: Map<String, Value>,
}
