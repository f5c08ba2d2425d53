//! Instructions, cycles and TLB misses of a whole program.

use std::fs::File;
use std::io::Read;

use nix::unistd::Pid;
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CACHE_DTLB, PERF_COUNT_HW_CACHE_ITLB, PERF_COUNT_HW_CACHE_OP_READ,
    PERF_COUNT_HW_CACHE_RESULT_MISS, PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
    PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE,
};

use crate::calls::perf::count_program;

/// The caller, in `perf_event_open(2)`.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// Counters of a program that has not begun, as far as the machine has them.
#[derive(Debug)]
pub struct ProgramCounts {
    instructions: Option<File>,
    instructions_user: Option<File>,
    cycles: Option<File>,
}

/// What was counted; `None`: there is no such counter, or it did not count the whole time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Retired instructions in user space and in the kernel.
    pub instructions: Option<u64>,
    /// Retired instructions in user space.
    pub instructions_user: Option<u64>,
    /// CPU cycles.
    pub cycles: Option<u64>,
}

impl ProgramCounts {
    /// Open the counters for a process, from its exec on, and for all that it starts.
    pub fn of(process: Pid) -> Self {
        let open = |event, user_only| open(process, (PERF_TYPE_HARDWARE, event), user_only);
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

/// Counters of the TLBs for what this thread starts, as far as the machine has them.
#[derive(Debug)]
pub struct TlbCounts {
    data: Option<File>,
    instructions: Option<File>,
}

impl TlbCounts {
    /// Count for programs that this thread starts from here on, each from its exec on.
    pub fn of_children() -> Self {
        // perf_event_open(2): the number of a cache event has the operation in its second byte and
        // the result in its third.
        let misses = (PERF_COUNT_HW_CACHE_OP_READ << 8) | (PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
        let open = |cache| open(THIS_THREAD, (PERF_TYPE_HW_CACHE, cache | misses), false);
        Self {
            data: open(PERF_COUNT_HW_CACHE_DTLB),
            instructions: open(PERF_COUNT_HW_CACHE_ITLB),
        }
    }

    /// Misses of loads in the data TLB and of fetches in the instruction TLB until now; `None`:
    /// there is no such counter, or it did not count the whole time.
    pub fn read(self) -> (Option<u64>, Option<u64>) {
        (self.data.and_then(read), self.instructions.and_then(read))
    }
}

fn open(process: Pid, event: (u32, u32), user_only: bool) -> Option<File> {
    let opened = count_program(process, event, user_only);
    opened.ok().map(File::from)
}

/// The count if it covers the whole time; a scaled count is an estimate.
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
    fn what_a_thread_starts_is_counted_and_it_itself_is_not() {
        use perf_event_open_sys::bindings::{PERF_COUNT_SW_PAGE_FAULTS, PERF_TYPE_SOFTWARE};
        use std::process::Command;

        let faults = (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS);
        let Some(counter) = open(THIS_THREAD, faults, true) else {
            println!("skipped: this kernel lets nobody count events");
            return;
        };
        // New pages of this process, which must not be in the count.
        std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(Command::new("/bin/true").status().unwrap().success());
        let count = read(counter).unwrap();
        assert!((1..8000).contains(&count), "{count}");
    }

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
