//! Where a synthetic process keeps its memory.

use crate::model::address::{Gva, PageSize};

pub(super) const HOT_BYTES: u64 = 32 << 10;
pub(super) const FOOTPRINT_LIMIT: u64 = 1 << 40;
/// The hot set's first byte.
pub(super) const HOT: Gva = Gva(0x0800_0000);
/// The footprint's first byte.
pub(super) const FOOTPRINT: Gva = Gva(0x1000_0000);
/// The start of allocations, if they fit below 4 GiB together with the footprint.
const ALLOCATIONS: u64 = 0x9000_0000;

/// Rounds up to whole pages, with 4 MiB for the second level, so that every table format can map
/// them.
pub(super) fn whole_pages(bytes: u64, size: PageSize) -> u64 {
    let page = match size {
        PageSize::K4 => 1 << 12,
        PageSize::M2 => 4 << 20,
        PageSize::G1 => 1 << 30,
    };
    bytes.next_multiple_of(page)
}

/// Where allocations begin in a process whose largest footprint is `footprint` bytes.
pub(super) fn allocations(footprint: u64) -> u64 {
    (FOOTPRINT.0 + footprint)
        .next_multiple_of(1 << 30)
        .max(ALLOCATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_workloads_fit_a_32_bit_guest() {
        assert_eq!(allocations(1 << 30), ALLOCATIONS);
        assert!(allocations(FOOTPRINT_LIMIT) >= FOOTPRINT.0 + FOOTPRINT_LIMIT);
        assert_eq!(whole_pages(5, PageSize::M2), 4 << 20);
    }
}
