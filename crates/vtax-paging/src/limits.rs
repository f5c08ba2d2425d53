//! How much a workload from a file may ask for.
//!
//! A few bytes of a trace can ask for any number of processes, page tables and changes of pages.
//! So what a trace may have alive at once is limited, and the work that is not paid for by the
//! trace's own length. Real guests stay far below.

use crate::error::ModelError;

/// Most of everything that a file's few bytes could multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processes alive.
    pub processes: usize,
    /// Ranges mapped in all processes.
    pub ranges: usize,
    /// The guest's page tables alive.
    pub tables: usize,
    /// Pages in one operation, and pages shared after forks.
    pub pages: usize,
    /// Shadow pages alive in all modes.
    pub shadow_pages: usize,
    /// Windows and changes of the mode, in all modes.
    pub rows: usize,
    /// Work beyond what the length pays for: see [`Meter`].
    pub work: u64,
}

impl Limits {
    /// For a workload whose author is the user.
    pub const NONE: Self = Self {
        processes: usize::MAX,
        ranges: usize::MAX,
        tables: usize::MAX,
        pages: usize::MAX,
        shadow_pages: usize::MAX,
        rows: usize::MAX,
        work: u64::MAX,
    };

    /// For a trace. Page tables are 256 MiB here and map 128 GiB densely in 4 KiB pages, shadow
    /// pages are 512 MiB, pages of one operation 8 GiB of the guest's memory, rows 200 MB.
    pub const TRACE: Self = Self {
        processes: 1 << 14,
        ranges: 1 << 20,
        tables: 1 << 16,
        pages: 1 << 21,
        shadow_pages: 1 << 17,
        rows: 1 << 19,
        work: 1 << 26,
    };

    /// Fails when there would be more than `most` of `what`.
    pub(crate) fn check(count: usize, most: usize, what: &str) -> Result<(), ModelError> {
        if count > most {
            return Err(ModelError::Limit(format!("more than {most} {what}")));
        }
        Ok(())
    }
}

/// Work that each step of the workload pays for, in units.
const PER_STEP: u64 = 64;
/// The same of each reference.
const PER_REFERENCE: u64 = 8;

/// What a workload has paid for, and so how much work it may ask for.
///
/// A unit is about one page looked at. Whatever visits many tables, pages or ranges for one step
/// counts them; a step or a reference by itself takes a bounded time and is not counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    paid: u64,
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { paid: limits.work }
    }

    /// One more step, with N references.
    pub(crate) fn pay(&mut self, references: usize) {
        let references = PER_REFERENCE.saturating_mul(references as u64);
        self.paid = self.paid.saturating_add(PER_STEP + references);
    }

    /// Fails when more was done than was paid for.
    pub(crate) fn check(self, work: u64) -> Result<(), ModelError> {
        if work > self.paid {
            let reason = format!(
                "more work than its length allows: operations on many pages, tables or ranges \
                 again and again ({} visits)",
                self.paid
            );
            return Err(ModelError::Limit(reason));
        }
        Ok(())
    }
}
