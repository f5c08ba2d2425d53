//! Lengths of detours in bins of doubling width.

use serde::Serialize;

/// The first bin holds all shorter lengths; the second begins here.
const FIRST_NS: u64 = 1_000;
/// Bins: below 1 us, twenty that double from there, and what is longer than 1.05 s.
const BINS: usize = 22;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram([u64; BINS]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The shortest length in it.
    pub from_ns: u64,
    /// Where the next bin begins; `None` for the last bin.
    pub below_ns: Option<u64>,
    pub count: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self([0; BINS])
    }

    /// Count a length.
    pub fn add(&mut self, length_ns: u64) {
        let doublings = (length_ns / FIRST_NS).checked_ilog2();
        let bin = doublings.map_or(0, |doublings| doublings as usize + 1);
        self.0[bin.min(BINS - 1)] += 1;
    }

    /// All bins, also the empty ones, so that histograms can be added up.
    pub fn bins(&self) -> Vec<Bin> {
        let begin = |bin: usize| if bin == 0 { 0 } else { FIRST_NS << (bin - 1) };
        let counts = self.0.iter().enumerate();
        counts
            .map(|(bin, count)| Bin {
                from_ns: begin(bin),
                below_ns: (bin + 1 < BINS).then(|| begin(bin + 1)),
                count: *count,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bins_begin_at_a_microsecond_and_double() {
        let bins = Histogram::new().bins();
        assert_eq!((bins[0].from_ns, bins[0].below_ns), (0, Some(1_000)));
        assert_eq!((bins[1].from_ns, bins[1].below_ns), (1_000, Some(2_000)));
        assert_eq!(bins[BINS - 1].from_ns, 1_000 << 20);
        assert_eq!(bins[BINS - 1].below_ns, None);
        let touching = bins
            .windows(2)
            .all(|two| two[0].below_ns == Some(two[1].from_ns));
        assert!(touching);
    }

    proptest! {
        #[test]
        fn a_length_is_counted_in_the_bin_that_has_it(length: u64, scale in 0_u32..64) {
            let length = length >> scale;
            let mut histogram = Histogram::new();
            histogram.add(length);
            let bins = histogram.bins();
            let counted: Vec<&Bin> = bins.iter().filter(|bin| bin.count > 0).collect();
            prop_assert_eq!(counted.len(), 1);
            prop_assert!(counted[0].from_ns <= length);
            prop_assert!(counted[0].below_ns.is_none_or(|end| length < end));
        }
    }
}
