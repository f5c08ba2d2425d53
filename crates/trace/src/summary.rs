//! Totals of a trace, for whoever started QEMU.

use std::fs;
use std::path::Path;

use serde::Serialize;
use vtax_model::step::Operation;

use crate::recorder::Totals;

/// What the guest did to its page tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub faults: u64,
    /// Loads of CR3, and other flushes of the whole TLB.
    pub cr3_loads: u64,
    /// Invalidations of single pages.
    pub invlpg: u64,
    /// Entries of page tables written.
    pub table_writes: u64,
}

impl Counts {
    pub fn count(&mut self, operation: &Operation) {
        match operation {
            Operation::Fault { .. } => self.faults += 1,
            Operation::LoadCr3 { .. } => self.cr3_loads += 1,
            Operation::Invlpg { .. } => self.invlpg += 1,
            Operation::Entry { written: true, .. } => self.table_writes += 1,
            _ => {}
        }
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    begun: bool,
    references: u64,
    instructions: u64,
    intervals: u64,
    recorded_intervals: u64,
    #[serde(flatten)]
    counts: Counts,
    /// Absent without a TLB for instructions.
    instruction_tlb_misses: Option<u64>,
    error: Option<&'a str>,
}

/// Writes the summary; a trace without an end gets none.
pub fn write(
    path: &Path,
    totals: Option<Totals>,
    counts: Counts,
    instruction_tlb_misses: Option<u64>,
    error: Option<&str>,
) -> Result<(), String> {
    let found = totals.unwrap_or_default();
    let summary = Summary {
        begun: totals.is_some(),
        references: found.references,
        instructions: found.instructions,
        intervals: found.intervals,
        recorded_intervals: found.recorded_intervals,
        counts,
        instruction_tlb_misses,
        error,
    };
    let text = serde_json::to_string(&summary).map_err(|error| error.to_string())?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use vtax_model::model::address::{Gfn, Gva};
    use vtax_model::step::TableEntry;

    use super::*;

    #[test]
    fn only_written_entries_count_as_writes() {
        let mut counts = Counts::default();
        for written in [true, false] {
            counts.count(&Operation::Entry {
                table: Gfn(1),
                index: 0,
                entry: TableEntry::default(),
                written,
            });
        }
        let address = Gva(0);
        counts.count(&Operation::Fault { address });
        counts.count(&Operation::Invlpg { address });
        let expected = Counts {
            faults: 1,
            cr3_loads: 0,
            invlpg: 1,
            table_writes: 1,
        };
        assert_eq!(counts, expected);
    }
}
