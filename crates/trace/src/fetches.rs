//! The pages in which the guest executes, each once between two operations.
//!
//! What a VMM has mapped stays mapped until the guest does something to its tables, so that only
//! the first instruction in a page can exit after that.

use vtax_model::step::Operation;

use crate::instruction_tlb::InstructionTlb;

/// Pages that are remembered; two pages of one place take turns, and are both told of again.
const PLACES: usize = 1024;

pub struct Fetches {
    /// The page, and the number of operations that were told when it was.
    seen: Box<[(u64, u64); PLACES]>,
    operations: u64,
    tlb: Option<InstructionTlb>,
}

impl Fetches {
    /// With a TLB for instructions of this many entries, if any.
    pub fn new(tlb_entries: Option<usize>) -> Self {
        Self {
            seen: Box::new([(0, 0); PLACES]),
            operations: 1,
            tlb: tlb_entries.map(InstructionTlb::new),
        }
    }

    /// Called at an operation.
    pub fn forget(&mut self) {
        self.operations += 1;
    }

    /// What the TLB hears of an operation.
    pub fn told(&mut self, operation: &Operation) {
        if let Some(tlb) = &mut self.tlb {
            tlb.told(operation);
        }
    }

    /// Misses of the TLB for instructions, if there is one.
    pub fn instruction_tlb_misses(&self) -> Option<u64> {
        self.tlb.as_ref().map(|tlb| tlb.misses)
    }

    /// The guest begins to execute in a page. Is the page new since the last operation?
    pub fn execute(&mut self, page: u64) -> bool {
        if let Some(tlb) = &mut self.tlb {
            tlb.execute(page);
        }
        let now = (page, self.operations);
        // The remainder is below PLACES.
        let place = usize::try_from(page % PLACES as u64).unwrap_or(0);
        std::mem::replace(&mut self.seen[place], now) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_new_once_after_each_operation() {
        let mut fetches = Fetches::new(Some(2));
        for _ in 0..3 {
            assert!(fetches.execute(0));
            assert!(fetches.execute(7));
            assert!(!fetches.execute(0) && !fetches.execute(7));
            assert!(fetches.execute(7 + PLACES as u64));
            fetches.forget();
        }
    }
}
