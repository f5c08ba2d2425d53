//! A TLB for instructions, which the blocks meet as the guest executes them: a trace tells of an
//! executed page only once between two operations, too seldom for a TLB.
//!
//! It is fully associative, and the entry that was not used for longest goes. The kernel's code is in
//! pages of 2 MiB, as Linux maps it, everything else in pages of 4 KiB.

/// Pages of 4 KiB in one of 2 MiB, as a shift.
const LARGE: u32 = 9;
/// The bit of a page of the kernel's.
const GLOBAL: u64 = 1 << 63;
/// The first page number of the kernel's half.
const KERNEL: u64 = 1 << 47 >> 12;

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

    /// All entries are gone.
    pub fn flush(&mut self) {
        self.held.clear();
    }

    /// A process begins: the kernel's pages, which are global, stay.
    pub fn leave_process(&mut self) {
        self.held.retain(|&held| held & GLOBAL != 0);
    }

    /// The entry of a page is gone.
    pub fn forget(&mut self, page: u64) {
        let page = entry(page);
        self.held.retain(|&held| held != page);
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
        let mut tlb = InstructionTlb::new(4);
        for round in 1..=3 {
            tlb.execute(7);
            tlb.execute(8);
            assert_eq!(tlb.misses, 2 * round);
            tlb.flush();
        }
        tlb.execute(7);
        tlb.execute(8);
        tlb.forget(7);
        tlb.execute(8);
        tlb.execute(7);
        assert_eq!(tlb.misses, 9);
        let kernel = u64::MAX >> 12;
        tlb.execute(kernel);
        tlb.leave_process();
        tlb.execute(kernel);
        assert_eq!(tlb.misses, 10);
        tlb.execute(8);
        assert_eq!(tlb.misses, 11);
    }
}
