//! The sizes of the pages with which the host maps the guest's memory.

use super::address::{Gpa, PageSize};
use crate::error::ModelError;

/// The host's usual page size, and the ranges of the guest's memory that it maps with pages of
/// another size, as after `MADV_COLLAPSE` of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPages {
    usual: PageSize,
    /// In the order of their addresses; none overlaps the next.
    ranges: Vec<HostRange>,
}

/// A range of guest physical memory with one size of host pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    pub start: Gpa,
    /// The first address after the range.
    pub end: Gpa,
    pub size: PageSize,
}

impl HostPages {
    /// Pages of one size everywhere.
    pub const fn of(usual: PageSize) -> Self {
        Self {
            usual,
            ranges: Vec::new(),
        }
    }

    /// Pages of a usual size, except in these ranges.
    ///
    /// Fails where a range is empty, overlaps another, or cuts a page of its own or the usual size.
    pub fn with(usual: PageSize, mut ranges: Vec<HostRange>) -> Result<Self, ModelError> {
        ranges.sort_by_key(|range| range.start);
        let mut end = Gpa(0);
        for range in &ranges {
            range.check(usual)?;
            if range.start < end {
                return Err(error(format!("{range} overlaps the range before it")));
            }
            end = range.end;
        }
        Ok(Self { usual, ranges })
    }

    /// The size outside the ranges.
    pub const fn usual(&self) -> PageSize {
        self.usual
    }

    /// Do all pages have one size?
    #[inline]
    pub const fn is_uniform(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The size of the page around an address.
    #[inline]
    pub fn at(&self, address: Gpa) -> PageSize {
        if self.is_uniform() {
            return self.usual;
        }
        let after = self.ranges.partition_point(|range| range.end <= address);
        match self.ranges.get(after) {
            Some(range) if range.start <= address => range.size,
            _ => self.usual,
        }
    }

    /// Every size that occurs.
    pub fn sizes(&self) -> impl Iterator<Item = PageSize> {
        let ranges = self.ranges.iter().map(|range| range.size);
        std::iter::once(self.usual).chain(ranges)
    }

    /// The ranges with a size of their own, in the order of their addresses.
    pub fn ranges(&self) -> &[HostRange] {
        &self.ranges
    }

    /// The first address after the last range; 0 without ranges.
    pub fn end(&self) -> Gpa {
        self.ranges.last().map_or(Gpa(0), |range| range.end)
    }
}

impl HostRange {
    fn check(&self, usual: PageSize) -> Result<(), ModelError> {
        let larger = self.size.max(usual);
        let inside = (1 << larger.shift()) - 1;
        if self.start >= self.end {
            return Err(error(format!("{self} is empty")));
        }
        if (self.start.0 | self.end.0) & inside != 0 {
            let bytes = inside + 1;
            let reason = format!("{self} must begin and end at multiples of {bytes} bytes");
            return Err(error(reason));
        }
        Ok(())
    }
}

impl std::fmt::Display for HostRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the range from byte {} to {}", self.start.0, self.end.0)
    }
}

fn error(reason: String) -> ModelError {
    ModelError::field("host_ranges", reason)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn range(start: u64, end: u64, size: PageSize) -> HostRange {
        HostRange {
            start: Gpa(start << 20),
            end: Gpa(end << 20),
            size,
        }
    }

    #[test]
    fn a_range_has_its_own_size_up_to_its_last_byte() {
        let ranges = vec![range(8, 12, PageSize::M2), range(2, 4, PageSize::M2)];
        let pages = HostPages::with(PageSize::K4, ranges).unwrap();
        let huge = |byte: u64| pages.at(Gpa(byte)) == PageSize::M2;
        for (start, end) in [(2, 4), (8, 12)] {
            assert!(!huge((start << 20) - 1) && huge(start << 20));
            assert!(huge((end << 20) - 1) && !huge(end << 20));
        }
        assert_eq!(pages.end(), Gpa(12 << 20));
    }

    #[test]
    fn a_range_that_no_host_can_have_is_refused() {
        let two = |first, second| vec![first, second];
        let cases = [
            (vec![range(4, 4, PageSize::M2)], "is empty"),
            (vec![range(6, 4, PageSize::M2)], "is empty"),
            (vec![range(2, 5, PageSize::M2)], "multiples of 2097152"),
            (
                vec![range(1, 1024, PageSize::G1)],
                "multiples of 1073741824",
            ),
            (
                two(range(2, 6, PageSize::M2), range(4, 8, PageSize::M2)),
                "overlaps",
            ),
        ];
        for (ranges, reason) in cases {
            let error = HostPages::with(PageSize::K4, ranges).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
        let small = vec![range(1, 2, PageSize::K4)];
        assert!(HostPages::with(PageSize::M2, small).is_err(), "half a page");
    }
}
