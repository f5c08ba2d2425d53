//! A TLB for instructions, which the blocks meet as the guest executes them: a trace tells of an
//! executed page only once between two operations, too seldom for a TLB.
//!
//! It is fully associative, and the entry that was not used for longest goes. The kernel's code is in
//! pages of 2 MiB, as Linux maps it, everything else in pages of 4 KiB.

use vtax_model::step::Operation;

/// The bytes of a page of 4 KiB, as a shift.
const SMALL: u32 = 12;
/// Pages of 4 KiB in one of 2 MiB, as a shift.
const LARGE: u32 = 9;
/// The bit of a page of the kernel's.
const GLOBAL: u64 = 1 << 63;
/// The first page number of the kernel's half.
const KERNEL: u64 = 1 << 47 >> SMALL;

#[derive(Debug)]
pub struct InstructionTlb {
    entries: usize,
    /// The page used last is the last.
    held: Vec<u64>,
    pub misses: u64,
}

impl InstructionTlb {
    pub fn new(entries: usize) -> Self {
        Self {
            entries,
            held: Vec::with_capacity(entries),
            misses: 0,
        }
    }

    /// The guest executes in a page, which is the address over 4 KiB.
    pub fn execute(&mut self, page: u64) {
        let page = entry(page);
        if let Some(at) = self.held.iter().rposition(|&held| held == page) {
            self.held.remove(at);
        } else {
            self.misses += 1;
            if self.held.len() == self.entries {
                self.held.remove(0);
            }
        }
        self.held.push(page);
    }

    /// Forget what an operation flushes: a page, or all but the kernel's, which are global.
    pub fn told(&mut self, operation: &Operation) {
        match operation {
            Operation::Invlpg { address } => {
                let gone = entry(address.0 >> SMALL);
                self.held.retain(|&held| held != gone);
            }
            Operation::LoadCr3 {
                preserve: false, ..
            } => self.held.retain(|&held| held & GLOBAL != 0),
            _ => {}
        }
    }
}

/// What an entry holds: a page of 4 KiB, or one of 2 MiB, which has a number beyond those.
fn entry(page: u64) -> u64 {
    if page < KERNEL {
        page
    } else {
        (page >> LARGE) | GLOBAL
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::model::address::{Gfn, Gva};

    use super::*;

    fn misses(entries: usize, pages: impl IntoIterator<Item = u64>) -> u64 {
        let mut tlb = InstructionTlb::new(entries);
        pages.into_iter().for_each(|page| tlb.execute(page));
        tlb.misses
    }

    #[test]
    fn what_fits_misses_once() {
        let rounds = (0..100).flat_map(|_| 0..32);
        assert_eq!(misses(32, rounds), 32);
    }

    #[test]
    fn a_loop_that_is_one_page_too_long_always_misses() {
        let rounds = (0..100).flat_map(|_| 0..33);
        assert_eq!(misses(32, rounds), 3300);
    }

    #[test]
    fn the_least_recently_used_goes() {
        assert_eq!(misses(2, [1, 2, 1, 3, 1, 2]), 4);
    }

    #[test]
    fn the_kernel_is_in_large_pages() {
        let kernel = u64::MAX >> 12;
        assert_eq!(misses(32, (kernel - 511)..=kernel), 1);
    }

    #[test]
    fn what_is_flushed_misses_again() {
        let load = |preserve| Operation::LoadCr3 {
            root: Gfn(1),
            preserve,
        };
        let address = Gva(7 << SMALL);
        let kernel = u64::MAX >> SMALL;
        let mut tlb = InstructionTlb::new(4);
        let mut misses = |told: Option<Operation>| {
            let before = tlb.misses;
            if let Some(operation) = told {
                tlb.told(&operation);
            }
            for page in [7, 8, kernel] {
                tlb.execute(page);
            }
            tlb.misses - before
        };
        assert_eq!(misses(None), 3);
        assert_eq!(misses(None), 0);
        assert_eq!(misses(Some(load(false))), 2, "the kernel's page is global");
        assert_eq!(misses(Some(load(true))), 0, "the load keeps the TLB");
        assert_eq!(misses(Some(Operation::Invlpg { address })), 1);
        assert_eq!(misses(Some(Operation::Fault { address })), 0);
    }
}
