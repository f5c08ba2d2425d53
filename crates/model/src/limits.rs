//! Limits what a workload from a file may ask for.
//!
//! A few bytes of a trace can ask for any number of processes, page tables and changes of pages. So
//! there are limits on what a trace may have alive at once, and on work that the trace's own length
//! does not pay for. Real guests stay far below these limits.

use crate::error::ModelError;

/// The limits of everything that a few bytes of a file could multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Live processes.
    pub processes: usize,
    /// Mapped ranges in all processes.
    pub ranges: usize,
    /// Live page tables of the guest.
    pub tables: usize,
    /// Pages in one operation, and pages shared after forks.
    pub pages: usize,
    /// Live shadow pages in all modes.
    pub shadow_pages: usize,
    /// Windows and changes of the mode, in all modes.
    pub rows: usize,
    /// Work beyond what the trace's length pays for: see [`Meter`].
    pub work: u64,
}

impl Limits {
    /// No limits, for a workload that the user wrote.
    pub const NONE: Self = Self {
        processes: usize::MAX,
        ranges: usize::MAX,
        tables: usize::MAX,
        pages: usize::MAX,
        shadow_pages: usize::MAX,
        rows: usize::MAX,
        work: u64::MAX,
    };

    /// The limits for a trace. Page tables take at most 256 MiB and map 128 GiB densely in 4 KiB
    /// pages; shadow pages take 512 MiB, the pages of one operation 8 GiB of the guest's memory,
    /// and rows 200 MB.
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
/// Work that each reference pays for.
const PER_REFERENCE: u64 = 8;

/// What a workload has paid for, and so how much work it may ask for.
///
/// A unit is about the visit of one page. Code that visits many tables, pages or ranges for one
/// step counts them; a step or a reference by itself takes a bounded time and is not counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    paid: u64,
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { paid: limits.work }
    }

    /// Pay for one more step, with N references.
    pub(crate) fn pay(&mut self, references: usize) {
        let references = PER_REFERENCE.saturating_mul(references as u64);
        self.paid = self.paid.saturating_add(PER_STEP + references);
    }

    /// Fails when more work was done than paid for.
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
