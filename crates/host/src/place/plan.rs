//! Plans: which thread and which interrupt goes to which CPUs (docs/place-format.md).

use std::collections::BTreeSet;

use serde::Deserialize;
use thiserror::Error;
use vtax_sys::cpu_list::{CpuListError, parse};

use crate::place::role::Role;

/// The layout that this version reads.
const FORMAT: u32 = 1;

/// Where threads and interrupts are to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The machine that the plan is for.
    pub host: String,
    /// Threads, each once.
    pub threads: Vec<PlannedThread>,
    /// Interrupts, each once.
    pub interrupts: Vec<PlannedInterrupt>,
}

/// The CPUs that a thread is to run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedThread {
    pub pid: i32,
    pub tid: i32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// The thread's name, for people.
    pub name: String,
    /// What the thread does, for people.
    pub role: Role,
    /// The CPUs, sorted; at least one.
    pub cpus: Vec<usize>,
}

/// The CPUs that are to answer an interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedInterrupt {
    pub number: u32,
    /// The CPUs, sorted; at least one.
    pub cpus: Vec<usize>,
}

/// Why a text is not a plan.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// The text is not TOML, or has other fields.
    #[error("line {line}: {reason}")]
    Syntax {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// The plan is of another version of this program.
    #[error("its format is {0}, and this version reads format {FORMAT}")]
    Format(u32),
    /// A list of CPUs is invalid.
    #[error("cpus of {0}: {1}")]
    Cpus(String, CpuListError),
    /// A thread or interrupt is named twice.
    #[error("{0} is in it twice")]
    Twice(String),
    /// Numbers that no thread has.
    #[error("a thread has the numbers pid = {0}, tid = {1}; both begin at 1")]
    Number(i32, i32),
    /// There is nothing to do.
    #[error("it names no thread and no interrupt")]
    Nothing,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    host: String,
    #[serde(default)]
    thread: Vec<ThreadEntry>,
    #[serde(default)]
    interrupt: Vec<InterruptEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThreadEntry {
    pid: i32,
    tid: i32,
    start_ticks: u64,
    name: String,
    role: Role,
    cpus: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterruptEntry {
    number: u32,
    cpus: String,
}

impl Plan {
    /// Read a plan.
    ///
    /// Fails, naming the line or the entry, when the text is not a plan.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        if file.format != FORMAT {
            return Err(PlanError::Format(file.format));
        }
        if file.thread.is_empty() && file.interrupt.is_empty() {
            return Err(PlanError::Nothing);
        }
        let threads = file.thread.into_iter().map(ThreadEntry::check);
        let interrupts = file.interrupt.into_iter().map(InterruptEntry::check);
        let plan = Self {
            host: file.host,
            threads: threads.collect::<Result<_, _>>()?,
            interrupts: interrupts.collect::<Result<_, _>>()?,
        };
        once(plan.threads.iter().map(|one| format!("thread {}", one.tid)))?;
        once(
            plan.interrupts
                .iter()
                .map(|one| format!("interrupt {}", one.number)),
        )?;
        Ok(plan)
    }
}

impl ThreadEntry {
    fn check(self) -> Result<PlannedThread, PlanError> {
        if self.pid < 1 || self.tid < 1 {
            return Err(PlanError::Number(self.pid, self.tid));
        }
        let cpus = parse(&self.cpus)
            .map_err(|error| PlanError::Cpus(format!("thread {}", self.tid), error))?;
        Ok(PlannedThread {
            pid: self.pid,
            tid: self.tid,
            start_ticks: self.start_ticks,
            name: self.name,
            role: self.role,
            cpus,
        })
    }
}

impl InterruptEntry {
    fn check(self) -> Result<PlannedInterrupt, PlanError> {
        let cpus = parse(&self.cpus)
            .map_err(|error| PlanError::Cpus(format!("interrupt {}", self.number), error))?;
        Ok(PlannedInterrupt {
            number: self.number,
            cpus,
        })
    }
}

fn once(names: impl Iterator<Item = String>) -> Result<(), PlanError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if let Some(twice) = seen.replace(name) {
            return Err(PlanError::Twice(twice));
        }
    }
    Ok(())
}

/// One line that says what is wrong, and where.
fn syntax(text: &str, error: &toml::de::Error) -> PlanError {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or_default();
    let reason: Vec<&str> = error.message().split_whitespace().collect();
    PlanError::Syntax {
        line: 1 + before.matches('\n').count(),
        reason: reason.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THREAD: &str = "[[thread]]\npid = 1\ntid = 2\nstart_ticks = 3\nname = \"vhost-1\"\n\
                          role = \"vhost\"\ncpus = \"2-3\"\n";
    const INTERRUPT: &str = "[[interrupt]]\nnumber = 24\ncpus = \"1\"\n";

    fn plan(rest: &str) -> Result<Plan, PlanError> {
        Plan::parse(&format!("format = 1\nhost = \"a\"\n{rest}"))
    }

    #[test]
    fn a_plan_is_read() {
        let plan = plan(&format!("{THREAD}{INTERRUPT}")).unwrap();
        assert_eq!(plan.host, "a");
        assert_eq!(
            (plan.threads[0].role, plan.threads[0].start_ticks),
            (Role::Vhost, 3)
        );
        assert_eq!(plan.threads[0].cpus, [2, 3]);
        assert_eq!(
            plan.interrupts,
            [PlannedInterrupt {
                number: 24,
                cpus: vec![1]
            }]
        );
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        let error = |rest: &str| plan(rest).unwrap_err().to_string();
        assert_eq!(error(""), "it names no thread and no interrupt");
        assert_eq!(
            error(&format!("{THREAD}{THREAD}")),
            "thread 2 is in it twice"
        );
        let empty = error(&THREAD.replace("2-3", ""));
        assert_eq!(empty, "cpus of thread 2: it names no CPU");
        assert!(error(&THREAD.replace("vhost\"\ncpus", "x\"\ncpus")).starts_with("line 8: "));
        assert!(error(&format!("{THREAD}colour = 1\n")).contains("colour"));
        assert!(error(&THREAD.replace("tid = 2", "tid = 0")).contains("begin at 1"));
        let other = Plan::parse("format = 2\nhost = \"a\"\n").unwrap_err();
        assert_eq!(other, PlanError::Format(2));
    }

    proptest! {
        #[test]
        fn any_text_is_answered_in_one_line(text in "(?s).{0,200}") {
            if let Err(error) = Plan::parse(&text) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }

        #[test]
        fn a_damaged_plan_is_answered_in_one_line(
            at in 0_usize..200, length in 0_usize..20, with in "(?s)[\\PC\n\"=\\[\\]0-9-]{0,8}",
        ) {
            let whole = format!("format = 1\nhost = \"a\"\n{THREAD}{INTERRUPT}");
            let start = at.min(whole.len());
            let end = (start + length).min(whole.len());
            let text = format!("{}{with}{}", &whole[..start], &whole[end..]);
            match Plan::parse(&text) {
                Ok(plan) => prop_assert!(plan.threads.iter().all(|one| !one.cpus.is_empty())),
                Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
            }
        }

        #[test]
        fn every_plan_is_read_back(
            tids in proptest::collection::btree_set(1_i32.., 1..20),
            cpus in proptest::collection::btree_set(0_usize..8192, 1..9),
        ) {
            let cpus: Vec<usize> = cpus.into_iter().collect();
            let list = crate::place::cpus::written(&cpus);
            let entries = tids.iter().map(|tid| {
                THREAD.replace("tid = 2", &format!("tid = {tid}")).replace("2-3", &list)
            });
            let plan = plan(&entries.collect::<String>()).unwrap();
            prop_assert!(plan.threads.iter().map(|one| one.tid).eq(tids));
            prop_assert!(plan.threads.iter().all(|one| one.cpus == cpus));
        }
    }
}
