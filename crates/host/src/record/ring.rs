//! The consumer's side of the rows: for each CPU a ring that the overflow program fills.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use vtax_sys::calls::memory::Mapping;

use crate::record::perf::Reading;
use crate::record::row::{HEADER_WORDS, MAX_SLOTS, Row};

// Words of `struct cpu_state` in bpf/recorder.h, whose offsets the C side asserts.
const HEAD: usize = 0;
const TAIL: usize = 64 / 8;
const SEQ: usize = 128 / 8;
const DROPPED: usize = 136 / 8;
const SUM: usize = 240 / 8;
const VALUES: usize = 1776 / 8;
/// Bytes of `struct cpu_state`.
pub const STATE_BYTES: u32 = 3584;
const STATE_WORDS: usize = STATE_BYTES as usize / 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// CPUs that can exist, up to the highest number.
    pub cpus: u32,
    /// Rows of one CPU, a power of two.
    pub rows: u32,
    /// Counters in a row.
    pub slots: usize,
    /// Words of the stack behind them.
    pub stack: usize,
}

impl Shape {
    /// Words of 64 bits in a row.
    pub fn row_words(self) -> usize {
        HEADER_WORDS + self.slots + self.stack
    }

    pub fn row_bytes(self) -> u32 {
        u32::try_from(self.row_words() * 8).unwrap_or(u32::MAX)
    }

    /// Rows of all CPUs together.
    pub fn all_rows(self) -> u32 {
        self.cpus.saturating_mul(self.rows)
    }
}

#[derive(Debug)]
pub struct Rings {
    shape: Shape,
    states: Mapping,
    rows: Mapping,
}

impl Rings {
    /// Map the two maps of the programs.
    ///
    /// Fails with the errno of the system call.
    pub fn map(states: BorrowedFd<'_>, rows: BorrowedFd<'_>, shape: Shape) -> Result<Self, Errno> {
        let state_words = STATE_WORDS * shape.cpus as usize;
        let row_words = shape.row_words() * shape.all_rows() as usize;
        Ok(Self {
            shape,
            states: Mapping::new(states, state_words, true)?,
            rows: Mapping::new(rows, row_words, false)?,
        })
    }

    /// CPUs that can exist.
    pub fn cpus(&self) -> u32 {
        self.shape.cpus
    }

    /// Take all available rows of a CPU.
    pub fn take(&self, cpu: u32, mut each: impl FnMut(Row)) {
        let state = Self::state(cpu);
        // Acquire: the rows were written before the head.
        let head = self.states.load(state + HEAD, Ordering::Acquire);
        let mut tail = self.states.load(state + TAIL, Ordering::Relaxed);
        let mut words = Vec::with_capacity(self.shape.row_words());
        while tail != head {
            let in_ring = tail & u64::from(self.shape.rows - 1);
            let row = u64::from(cpu) * u64::from(self.shape.rows) + in_ring;
            let start = usize::try_from(row).unwrap_or(usize::MAX) * self.shape.row_words();
            words.clear();
            self.rows.copy(start, self.shape.row_words(), &mut words);
            if let Some(mut row) = Row::from_words(&words) {
                row.stack = row.values.split_off(self.shape.slots.min(row.values.len()));
                each(row);
            }
            tail = tail.wrapping_add(1);
        }
        // Release: the rows have been read before the writer may use their space again.
        self.states.store(state + TAIL, tail, Ordering::Release);
    }

    /// Overflows on a CPU, and how many of them found the ring full.
    pub fn overflows(&self, cpu: u32) -> (u64, u64) {
        let state = Self::state(cpu);
        (
            self.states.load(state + SEQ, Ordering::Relaxed),
            self.states.load(state + DROPPED, Ordering::Relaxed),
        )
    }

    /// The current cumulative counters of a CPU, without the read counters.
    pub fn values(&self, cpu: u32) -> Vec<u64> {
        let mut values = Vec::with_capacity(MAX_SLOTS);
        self.states
            .copy(Self::state(cpu) + VALUES, self.shape.slots, &mut values);
        values
    }

    /// Add what a perf event counted before it was closed to the start values of its CPU's rows.
    /// The CPU must be offline; otherwise the programs would write here too.
    pub fn carry(&self, cpu: u32, event: usize, reading: Reading) {
        let slot = Self::state(cpu) + SUM + 3 * event;
        let counted = [reading.count, reading.enabled_ns, reading.running_ns];
        for (at, amount) in counted.into_iter().enumerate() {
            let before = self.states.load(slot + at, Ordering::Relaxed);
            let sum = before.wrapping_add(amount);
            self.states.store(slot + at, sum, Ordering::Relaxed);
        }
    }

    fn state(cpu: u32) -> usize {
        cpu as usize * STATE_WORDS
    }
}
