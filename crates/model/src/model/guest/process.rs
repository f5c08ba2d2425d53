//! A process of the guest: its roots and the ranges it has reserved.

use std::collections::BTreeMap;

use crate::error::ModelError;
use crate::model::address::{Gfn, Gva, PageSize};

/// A reserved range of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) end: u64,
    pub(super) size: PageSize,
    pub(super) writable: bool,
}

/// One address space.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// The root that the kernel uses; without isolation user code uses it too.
    pub(super) kernel_root: Gfn,
    /// The root that user code uses.
    pub(super) user_root: Gfn,
    regions: BTreeMap<u64, Region>,
}

impl Process {
    pub(super) fn new(kernel_root: Gfn, user_root: Gfn) -> Self {
        Self {
            kernel_root,
            user_root,
            regions: BTreeMap::new(),
        }
    }

    pub(super) fn ranges(&self) -> usize {
        self.regions.len()
    }

    /// A process with the same ranges under other roots.
    pub(super) fn copy(&self, kernel_root: Gfn, user_root: Gfn) -> Self {
        Self {
            kernel_root,
            user_root,
            regions: self.regions.clone(),
        }
    }

    pub(super) fn region(&self, address: Gva) -> Option<Region> {
        let (_, region) = self.regions.range(..=address.0).next_back()?;
        (address.0 < region.end).then_some(*region)
    }

    pub(super) fn reserve(&mut self, start: u64, region: Region) -> Result<(), ModelError> {
        let overlaps = self.regions.range(..region.end).next_back();
        if overlaps.is_some_and(|(_, other)| other.end > start) {
            let reason = format!("the range at {start:#x} overlaps a mapped one");
            return Err(ModelError::Operation {
                operation: "map",
                reason,
            });
        }
        self.regions.insert(start, region);
        Ok(())
    }

    /// Removes `start..end` from the ranges, cutting those that extend beyond it. Returns how many
    /// ranges it visited.
    pub(super) fn release(&mut self, start: u64, end: u64) -> usize {
        let pieces = self.cut(start, end);
        for (from, region) in &pieces {
            self.regions.remove(from);
            debug_assert!(region.end <= end);
        }
        pieces.len()
    }

    /// Allows or forbids writes in `start..end`. Returns how many ranges it visited.
    pub(super) fn protect(&mut self, start: u64, end: u64, writable: bool) -> usize {
        let pieces = self.cut(start, end);
        for &(from, region) in &pieces {
            self.regions.insert(from, Region { writable, ..region });
        }
        pieces.len()
    }

    /// Cuts the ranges at `start` and `end` and returns the pieces between.
    fn cut(&mut self, start: u64, end: u64) -> Vec<(u64, Region)> {
        for at in [start, end] {
            let over = self
                .regions
                .range(..at)
                .next_back()
                .map(|(&from, &region)| (from, region));
            if let Some((from, region)) = over.filter(|(_, region)| region.end > at) {
                self.regions.insert(from, Region { end: at, ..region });
                self.regions.insert(at, region);
            }
        }
        self.regions
            .range(start..end)
            .map(|(&from, &region)| (from, region))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        let mut process = Process::new(Gfn(1), Gfn(1));
        let region = Region {
            end: 0x5000,
            size: PageSize::K4,
            writable: true,
        };
        process.reserve(0x1000, region).unwrap();
        process
    }

    #[test]
    fn a_hole_splits_a_range() {
        let mut process = process();
        process.release(0x2000, 0x3000);
        let found = [0x1000, 0x2000, 0x3000, 0x4fff, 0x5000].map(|at| process.region(Gva(at)));
        assert_eq!(
            found.map(|region| region.is_some()),
            [true, false, true, true, false]
        );
    }

    #[test]
    fn protection_changes_only_its_range() {
        let mut process = process();
        process.protect(0x0, 0x2000, false);
        let writable = [0x1000, 0x2000].map(|at| process.region(Gva(at)).unwrap().writable);
        assert_eq!(writable, [false, true]);
    }

    #[test]
    fn ranges_do_not_overlap() {
        let mut process = process();
        let region = Region {
            end: 0x9000,
            size: PageSize::K4,
            writable: true,
        };
        assert!(process.reserve(0x4000, region).is_err());
        assert!(process.reserve(0x5000, region).is_ok());
    }
}
