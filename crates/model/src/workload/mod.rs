//! Synthetic workloads: phases of references and page-table changes, described in TOML.

mod bytes;
mod changes;
mod layout;
mod locality;
pub mod profiles;
mod references;
mod synthetic;

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::model::address::PageSize;

pub use bytes::Bytes;
pub use locality::{busiest_first, locality, locality_of_trace};
pub use synthetic::{Part, Synthetic};

/// A synthetic workload: phases, and the order in which they run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The name on the command line.
    pub name: String,
    /// What it stands for, for people.
    pub title: String,
    /// What is known about the original and what is assumed.
    pub basis: String,
    /// Size of the guest's pages.
    #[serde(default)]
    pub pages: PageSize,
    /// The phases; a schedule names them.
    pub phase: Vec<Phase>,
    /// The order in which the phases run, by name; if empty, as listed, once.
    #[serde(default)]
    pub schedule: Vec<String>,
    /// How often the schedule runs.
    #[serde(default = "once")]
    pub repeat: u32,
}

fn once() -> u32 {
    1
}

/// A phase: a part of the run with constant rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The name in the schedule.
    pub name: String,
    /// Length in retired instructions.
    pub instructions: f64,
    /// Cycles per instruction without any cost of translation.
    pub base_cpi: f32,
    /// Data references per instruction.
    pub references_per_instruction: f64,
    #[serde(default = "third")]
    pub write_share: f64,
    /// The memory the phase works on.
    pub footprint: Bytes,
    /// How the phase walks over the footprint.
    pub mix: Mix,
    /// What its system software does meanwhile.
    #[serde(default)]
    pub changes: Changes,
    /// Is the phase a new program, that is, a new process with its own page tables?
    #[serde(default)]
    pub new_process: bool,
}

fn third() -> f64 {
    0.3
}

/// Shares of the ways to choose the next address. The remainder to 1 goes to a hot set of 32 KiB
/// (stack, scalars) that every TLB holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Share that walks through the footprint with `stride`.
    pub sequential: f64,
    /// Step of the sequential share in bytes.
    pub stride: Bytes,
    /// Share that falls uniformly on the footprint.
    pub random: f64,
    /// Share whose pages follow Zipf's law: the most popular page first, the next ones beside it.
    pub zipf: f64,
    /// Exponent of Zipf's law.
    pub exponent: f64,
    /// Scatter the popular pages over the footprint instead.
    pub scatter: bool,
}

/// Rates of what the system software does, per million instructions unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Changes {
    /// Allocations: mmap, a write to every page, munmap after `lifetime` further allocations.
    pub allocations: f64,
    pub allocation_pages: u32,
    /// The number of allocations that live at a time.
    pub lifetime: u32,
    /// mprotect to read-only and back over `protect_pages` of the footprint.
    pub protects: f64,
    /// Pages of one mprotect.
    pub protect_pages: u32,
    /// fork, the child writes `fork_writes` pages and exits.
    pub forks: f64,
    /// Pages that the child writes.
    pub fork_writes: u32,
    /// Context switches, round robin among `processes`.
    pub switches: f64,
    /// The number of processes that share the CPU, including the running one.
    pub processes: u32,
    /// System calls that change no page table.
    pub system_calls: f64,
    /// Exits that the paging mode does not decide.
    pub other_exits: f64,
}

impl Workload {
    /// Parses a description and checks it.
    ///
    /// Fails when the text is not TOML or is longer than 1 MiB, and, naming the field, when a field
    /// is unknown, missing or wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let workload: Self = crate::description::parse(text)?;
        workload.check()?;
        Ok(workload)
    }

    /// The indices of the phases in the order in which they run, repetitions included.
    pub fn order(&self) -> Vec<usize> {
        let index = |name: &String| self.phase.iter().position(|phase| phase.name == *name);
        let once: Vec<usize> = if self.schedule.is_empty() {
            (0..self.phase.len()).collect()
        } else {
            self.schedule.iter().filter_map(index).collect()
        };
        once.repeat(self.repeat as usize)
    }

    /// Length of the whole in instructions.
    pub fn instructions(&self) -> f64 {
        self.order()
            .iter()
            .map(|&at| self.phase[at].instructions)
            .sum()
    }

    /// Fails, naming the field, when the description is invalid.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.phase.is_empty() {
            return Err(ModelError::field(
                "phase",
                "a workload needs at least one phase",
            ));
        }
        for (at, phase) in self.phase.iter().enumerate() {
            let path = format!("phase[{at}]");
            if self.phase[..at]
                .iter()
                .any(|other| other.name == phase.name)
            {
                return Err(ModelError::field(format!("{path}.name"), "is used twice"));
            }
            phase.check(&path)?;
        }
        for (at, name) in self.schedule.iter().enumerate() {
            if !self.phase.iter().any(|phase| phase.name == *name) {
                let reason = format!("there is no phase {name:?}");
                return Err(ModelError::field(format!("schedule[{at}]"), reason));
            }
        }
        let runs = self.repeat as usize * self.schedule.len().max(self.phase.len());
        if !(1..=1_000_000).contains(&runs) {
            return Err(ModelError::field(
                "repeat",
                "must give 1 to 1,000,000 phases in all",
            ));
        }
        Ok(())
    }
}

impl Phase {
    fn check(&self, path: &str) -> Result<(), ModelError> {
        let error = |field: &str, reason: &str| {
            Err(ModelError::field(
                format!("{path}.{field}"),
                reason.to_owned(),
            ))
        };
        if !(1.0..=1e18).contains(&self.instructions) {
            return error("instructions", "must be 1 to 1e18");
        }
        if !(0.01..=1000.0).contains(&self.base_cpi) {
            return error("base_cpi", "must be 0.01 to 1000");
        }
        if !(0.0..=4.0).contains(&self.references_per_instruction) {
            return error("references_per_instruction", "must be 0 to 4");
        }
        if !(0.0..=1.0).contains(&self.write_share) {
            return error("write_share", "must be 0 to 1");
        }
        if !(4096..=layout::FOOTPRINT_LIMIT).contains(&self.footprint.0) {
            return error("footprint", "must be 4K to 1T");
        }
        self.mix.check(path)?;
        self.changes.check(path)
    }
}

impl Mix {
    fn check(&self, path: &str) -> Result<(), ModelError> {
        let shares = [self.sequential, self.random, self.zipf];
        let valid = shares.iter().all(|share| (0.0..=1.0).contains(share));
        if !valid || shares.iter().sum::<f64>() > 1.0 + 1e-9 {
            let reason = "sequential, random and zipf must be shares of at most 1 in all";
            return Err(ModelError::field(format!("{path}.mix"), reason));
        }
        if self.sequential > 0.0 && self.stride.0 == 0 {
            return Err(ModelError::field(
                format!("{path}.mix.stride"),
                "must be at least 1",
            ));
        }
        if self.zipf > 0.0 && !(0.01..=10.0).contains(&self.exponent) {
            return Err(ModelError::field(
                format!("{path}.mix.exponent"),
                "must be 0.01 to 10",
            ));
        }
        Ok(())
    }
}

impl Changes {
    fn check(&self, path: &str) -> Result<(), ModelError> {
        let rates = [
            ("allocations", self.allocations),
            ("protects", self.protects),
            ("forks", self.forks),
            ("switches", self.switches),
            ("system_calls", self.system_calls),
            ("other_exits", self.other_exits),
        ];
        for (name, rate) in rates {
            if !(0.0..=10_000.0).contains(&rate) {
                let reason = "must be 0 to 10,000 per million instructions";
                return Err(ModelError::field(format!("{path}.changes.{name}"), reason));
            }
        }
        let counts = [
            (
                "allocation_pages",
                self.allocations,
                self.allocation_pages,
                1 << 16,
            ),
            ("lifetime", self.allocations, self.lifetime, 1 << 10),
            ("protect_pages", self.protects, self.protect_pages, 1 << 16),
            ("fork_writes", 0.0, self.fork_writes, 1 << 16),
            ("processes", self.switches, self.processes, 256),
        ];
        for (name, rate, count, most) in counts {
            if (rate > 0.0 && count == 0) || count > most {
                let reason = format!("must be 1 to {most} where its rate is not 0");
                return Err(ModelError::field(format!("{path}.changes.{name}"), reason));
            }
        }
        Ok(())
    }
}
