//! `fork-exec-storm`: processes that end at once.

use std::ffi::CString;
use std::hint::black_box;

use serde_json::Map;

use crate::bound::Bound;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{SEED, mem};
use crate::pattern;
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::memory::{fill, map};
use crate::workloads::process::{FORK_REMEDY, wait};
use vtax_sys::calls::children::Program;
use vtax_sys::calls::children::fork_and_exec;
use vtax_sys::terminal::Error;

/// Starts processes one after the other.
#[derive(Debug)]
pub struct ForkExecStorm;

static DESCRIPTION: Description = Description {
    name: "fork-exec-storm",
    summary: "Forks, executes this program again, which ends at once, and waits for it",
    stresses: "Address spaces made and destroyed: page tables copied and write-protected, \
               copy-on-write faults, new CR3 values; the worst case of shadow paging",
    unit: "processes",
    default_bound: Bound::Count(60),
    options: &[
        mem(
            "4M",
            "Memory of the parent, whose page tables each fork copies",
        ),
        SEED,
    ],
};

impl Workload for ForkExecStorm {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let seed = job.parameters.number("seed");
        let mut parent = map(job, job.parameters.number("mem"), false)?;
        fill(parent.words_mut(), seed);
        let mut storm = Storm::new(seed);
        let meter = Meter::start();
        while job.limit.grant(1).is_some() {
            storm.start_one(&job.context.trivial_program)?;
        }
        let usage = meter.stop();
        black_box(parent.words());
        let mut details = Map::new();
        details.insert("wrong_exit_codes".into(), storm.wrong.into());
        Ok(Outcome {
            usage,
            operations: job.limit.done(),
            checksum: Some(storm.checksum.value()),
            verified: storm.wrong == 0,
            details,
        })
    }
}

struct Storm {
    seed: u64,
    started: u64,
    wrong: u64,
    checksum: Checksum,
}

impl Storm {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            started: 0,
            wrong: 0,
            checksum: Checksum::new(),
        }
    }

    /// Start a process with a different exit code each time, and check that it ends with that code.
    fn start_one(&mut self, program: &Program) -> Result<(), Error> {
        let code = pattern::word(self.seed, self.started) % 126;
        self.started += 1;
        let last = CString::new(code.to_string())
            .map_err(|error| Error::failure("fork", error, "report this as a bug"))?;
        let child = fork_and_exec(program, &last)
            .map_err(|errno| Error::system("fork", errno, FORK_REMEDY))?;
        let ended = wait(child)?.and_then(|code| u64::try_from(code).ok());
        self.wrong += u64::from(ended != Some(code));
        self.checksum.add(ended.unwrap_or(u64::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            path: c"/bin/sh".into(),
            arguments: vec![c"sh".into(), c"-c".into(), CString::new(script).unwrap()],
        }
    }

    #[test]
    fn exit_codes_are_checked() {
        let mut storm = Storm::new(3);
        for _ in 0..5 {
            storm.start_one(&shell("exit $0")).unwrap();
        }
        assert_eq!(storm.wrong, 0);
        storm.start_one(&shell("exit 126")).unwrap();
        storm.start_one(&shell("kill -9 $$")).unwrap();
        assert_eq!(storm.wrong, 2);
    }

    #[test]
    fn a_program_that_is_not_there_is_wrong() {
        let mut program = shell("");
        program.path = c"/nonexistent".into();
        let mut storm = Storm::new(3);
        storm.start_one(&program).unwrap();
        assert_eq!(storm.wrong, 1);
    }
}
