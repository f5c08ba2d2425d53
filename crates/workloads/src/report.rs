//! Running a workload and reporting it.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::bound::{Bound, Limit};
use crate::cast;
use crate::job::Context;
use crate::options::Parameters;
use crate::workload::{Job, Outcome, Workload};
use vtax_sys::terminal::Error;

#[derive(Debug, Serialize)]
pub struct Report {
    pub workload: &'static str,
    /// Its options, with sizes in bytes, and the bound: `count` or `seconds`.
    pub parameters: Map<String, Value>,
    /// Seconds that the operations took.
    pub wall_s: f64,
    /// CPU seconds in user space, children included.
    pub user_s: f64,
    /// CPU seconds in the kernel, children included.
    pub system_s: f64,
    /// How many operations were done.
    pub operations: u64,
    /// What an operation is.
    pub unit: &'static str,
    /// `None`: the time was too short to measure.
    pub operations_per_s: Option<f64>,
    /// Page faults without I/O, children included.
    pub minor_faults: u64,
    /// The checksum as 16 hexadecimal digits; `None` where there is no data that a seed determines.
    pub checksum: Option<String>,
    /// Was all the work right?
    pub verified: bool,
    pub details: Map<String, Value>,
}

/// Run a workload.
///
/// Fails when the workload cannot get what it needs, such as memory. A wrong result is not a
/// failure: the report then has `verified` false.
pub fn run(
    workload: &dyn Workload,
    parameters: &Parameters,
    bound: Bound,
    context: &Context<'_>,
) -> Result<Report, Error> {
    let mut job = Job {
        parameters,
        limit: Limit::new(bound),
        context,
    };
    let outcome = workload.run(&mut job)?;
    Ok(report(workload, parameters, bound, outcome))
}

fn report(
    workload: &dyn Workload,
    parameters: &Parameters,
    bound: Bound,
    outcome: Outcome,
) -> Report {
    let description = workload.description();
    let mut parameters = parameters.to_json();
    match bound {
        Bound::Count(count) => parameters.insert("count".into(), count.into()),
        Bound::Time(time) => parameters.insert("seconds".into(), time.as_secs_f64().into()),
    };
    let wall_s = outcome.usage.wall.as_secs_f64();
    Report {
        workload: description.name,
        parameters,
        wall_s,
        user_s: outcome.usage.user.as_secs_f64(),
        system_s: outcome.usage.system.as_secs_f64(),
        operations: outcome.operations,
        unit: description.unit,
        operations_per_s: (wall_s > 0.0).then(|| cast::float(outcome.operations) / wall_s),
        minor_faults: outcome.usage.minor_faults,
        checksum: outcome.checksum.map(|checksum| format!("{checksum:016x}")),
        verified: outcome.verified,
        details: outcome.details,
    }
}
