//! Instructions and cycles of a whole program.

use std::fs::File;
use std::io::Read;

use nix::unistd::Pid;
use perf_event_open_sys::bindings::{PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS};

use crate::calls::perf::count_program;

/// Counters of a program that has not begun; those that the machine has.
#[derive(Debug)]
pub struct ProgramCounts {
    instructions: Option<File>,
    instructions_user: Option<File>,
    cycles: Option<File>,
}

/// What was counted; `None`: there is no such counter, or it was not counting all the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Retired, in user space and in the kernel.
    pub instructions: Option<u64>,
    /// Those in user space.
    pub instructions_user: Option<u64>,
    /// Of the CPU.
    pub cycles: Option<u64>,
}

impl ProgramCounts {
    /// Of the process, from its exec on, and of all that it starts.
    pub fn of(process: Pid) -> Self {
        let open = |event, user_only| {
            let opened = count_program(process, event, user_only);
            opened.ok().map(File::from)
        };
        Self {
            instructions: open(PERF_COUNT_HW_INSTRUCTIONS, false),
            instructions_user: open(PERF_COUNT_HW_INSTRUCTIONS, true),
            cycles: open(PERF_COUNT_HW_CPU_CYCLES, false),
        }
    }

    /// What was counted until now.
    pub fn read(self) -> Counted {
        Counted {
            instructions: self.instructions.and_then(read),
            instructions_user: self.instructions_user.and_then(read),
            cycles: self.cycles.and_then(read),
        }
    }
}

/// The count, if it is one of the whole time: a scaled one is an estimate.
fn read(mut counter: File) -> Option<u64> {
    let mut words = [0; 24];
    counter.read_exact(&mut words).ok()?;
    whole(words)
}

fn whole(words: [u8; 24]) -> Option<u64> {
    let word = |at: usize| {
        let bytes = words.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let (count, enabled, running) = (word(0)?, word(8)?, word(16)?);
    (running > 0 && running == enabled).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_a_part_of_the_time_is_none() {
        let words = |values: [u64; 3]| {
            let mut words = [0; 24];
            for (word, value) in words.chunks_mut(8).zip(values) {
                word.copy_from_slice(&value.to_ne_bytes());
            }
            words
        };
        assert_eq!(whole(words([1000, 50, 50])), Some(1000));
        assert_eq!(whole(words([1000, 50, 49])), None);
        assert_eq!(whole(words([0, 0, 0])), None);
    }
}
