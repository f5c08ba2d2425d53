//! Holds threads below full speed until the end, then restores everything.

pub mod guardian;
mod hog;
mod means;
mod probe;

use std::path::Path;

use serde::Serialize;
use vtax_sys::task::Task;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::backends::Backend;
use crate::place::cpus::online;
use crate::place::domain::thread_folder;
use crate::place::journal::Affinity;
use crate::place::slow::guardian::Held;
use crate::place::slow::means::Means;

/// The user is told when the measured speed is this far from the wanted speed.
const TOLERATED_POINTS: f64 = 10.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub backend: Backend,
    /// The wanted speed in percent of full speed.
    pub percent: f64,
    /// The slow CPU that all threads share.
    pub cpu: Option<usize>,
    pub threads: Vec<i32>,
}

/// What is in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InForce {
    pub backend: Backend,
    /// The wanted speed.
    pub asked_percent: f64,
    /// The measured speed; absent where it could not be measured.
    pub obtained_percent: Option<f64>,
    /// The lower end of its 96 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// Is the measured speed near the wanted speed? Absent where it was not measured.
    pub honoured: Option<bool>,
    /// What was set.
    pub how: String,
    /// What this way does not reproduce of a slow core.
    pub does_not: &'static str,
}

/// The result of slowing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ended {
    /// How long the quota held the threads back; absent for other ways.
    pub throttled_s: Option<f64>,
    /// Threads that have ended meanwhile.
    pub ended: Vec<i32>,
}

#[derive(Debug, Clone)]
pub struct Target {
    affinity: Affinity,
    task: Task,
}

impl Request {
    /// Hold the threads until `wait` returns; `say` receives what is in force.
    ///
    /// Fails before anything changes when the request is not possible; a later failure first
    /// restores everything.
    pub fn hold(
        &self,
        tree: &Tree,
        state: &Path,
        say: impl FnOnce(&InForce) -> Result<(), Error>,
        wait: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Ended, Error> {
        let targets = self.targets(tree)?;
        let mut means = Means::choose(tree, self, &targets)?;
        let held = Held::begin(tree, state, means.before())?;
        let refused = |reason: String| Error::failure(self.backend.name(), reason, REMEDY);
        let obtained = means.measure(tree).map_err(refused)?;
        means.engage(tree, &targets).map_err(refused)?;
        say(&InForce {
            backend: self.backend,
            asked_percent: self.percent,
            obtained_percent: obtained.map(|found| found.percent),
            low: obtained.map(|found| found.low),
            high: obtained.map(|found| found.high),
            honoured: obtained
                .map(|found| (found.percent - self.percent).abs() <= TOLERATED_POINTS),
            how: means.how(),
            does_not: self.backend.does_not(),
        })?;
        wait()?;
        let throttled = means.throttled_s();
        drop(means);
        held.end()?;
        let gone = targets.iter().filter(|one| !one.affinity.lives(tree));
        Ok(Ended {
            throttled_s: throttled,
            ended: gone.map(|one| one.affinity.tid).collect(),
        })
    }

    fn targets(&self, tree: &Tree) -> Result<Vec<Target>, Error> {
        if let Some(cpu) = self.cpu.filter(|cpu| !online(tree).contains(cpu)) {
            let thing = format!("--cpu {cpu}");
            return Err(Error::misuse(thing, "it is not online", "name another"));
        }
        if let Some(reason) = self.backend.obstacle(tree) {
            let thing = format!("--backend {}", self.backend.name());
            return Err(Error::failure(
                thing,
                reason,
                "see `vtax-host place backends`",
            ));
        }
        let mut threads = self.threads.clone();
        threads.sort_unstable();
        threads.dedup();
        threads.into_iter().map(|tid| target(tree, tid)).collect()
    }
}

const REMEDY: &str = "see `vtax-host place backends`, or choose another way";

fn target(tree: &Tree, tid: i32) -> Result<Target, Error> {
    let found = tree.process_of(tid).and_then(|pid| {
        Some(Target {
            affinity: Affinity::read(tree, pid, tid)?,
            task: tree.task(&thread_folder(pid, tid))?,
        })
    });
    let thing = format!("--tid {tid}");
    found.ok_or_else(|| Error::misuse(thing, "no such thread", "name one that runs"))
}
