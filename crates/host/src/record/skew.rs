//! How far a guest's clock is from this machine's, from the guest's page alone.
//!
//! A publication carries the guest's time, read after the page's sequence became odd. The guest
//! read that time before this machine saw it, and after this machine last saw the previous
//! sequence. So each new publication bounds the difference of the clocks from both sides.

use serde::Serialize;

/// Publications that are combined: clocks drift apart, so older ones say less.
const WINDOW: u32 = 256;

/// The guest's clock minus this machine's; both are `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Skew {
    /// The offset in nanoseconds: the middle of the possible range.
    pub offset_ns: i64,
    /// The true offset is at most this far from `offset_ns`, in nanoseconds.
    pub within_ns: u64,
}

/// Combines bounds.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// The sequence of the last publication seen, and the time just before that look.
    last: Option<(u64, u64)>,
    lowest: Option<i128>,
    highest: Option<i128>,
    seen: u32,
    done: Option<Skew>,
    widest: Option<u64>,
}

impl Bounds {
    /// Take one look at the page: this machine's time before and after it, the publication's
    /// sequence, and the guest's time in it.
    pub fn take(&mut self, before_ns: u64, after_ns: u64, sequence: u64, guest_ns: u64) {
        let last = self.last.replace((sequence, before_ns));
        let Some((old, old_before_ns)) = last.filter(|(old, _)| *old != sequence) else {
            return;
        };
        if sequence < old {
            // The publisher has changed, and perhaps its clock.
            *self = Self {
                last: self.last,
                ..Self::default()
            };
            return;
        }
        let low = i128::from(guest_ns) - i128::from(after_ns);
        let high = i128::from(guest_ns) - i128::from(old_before_ns);
        self.lowest = Some(self.lowest.map_or(low, |lowest| lowest.max(low)));
        self.highest = Some(self.highest.map_or(high, |highest| highest.min(high)));
        self.seen += 1;
        if self.seen == WINDOW {
            self.close();
        }
    }

    /// The newest bound; `None` before there is one.
    pub fn skew(&self) -> Option<Skew> {
        self.done.or_else(|| self.window())
    }

    /// The widest bound of all windows.
    pub fn widest_ns(&self) -> Option<u64> {
        self.widest
            .or_else(|| self.window().map(|skew| skew.within_ns))
    }

    fn window(&self) -> Option<Skew> {
        let (low, high) = (self.lowest?, self.highest?);
        Some(Skew {
            offset_ns: i64::try_from(i128::midpoint(low, high)).ok()?,
            // The bounds cross when the clocks drift more within a window than the bounds allow:
            // then either bound may be true.
            within_ns: u64::try_from(((high - low).abs() + 1) / 2).ok()?,
        })
    }

    fn close(&mut self) {
        if let Some(skew) = self.window() {
            self.done = Some(skew);
            self.widest = self.widest.max(Some(skew.within_ns));
        }
        (self.lowest, self.highest, self.seen) = (None, None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_a_new_publication_there_is_no_bound() {
        let mut bounds = Bounds::default();
        bounds.take(10, 11, 2, 500);
        bounds.take(20, 21, 2, 500);
        assert_eq!(bounds.skew(), None);
        // Published after 20 and before 31.
        bounds.take(30, 31, 4, 525);
        let skew = bounds.skew().unwrap();
        assert_eq!((skew.offset_ns, skew.within_ns), (499, 6));
    }

    proptest! {
        /// Whatever the rates, delays and offset are, the true offset is inside the bound.
        #[test]
        fn the_true_offset_is_inside(
            offset in -1_000_000_000_000_i64..1_000_000_000_000,
            steps in proptest::collection::vec((0_u64..20_000, 0_u64..3_000, any::<bool>()), 2..400),
        ) {
            let mut bounds = Bounds::default();
            let mut now = 2_000_000_000_000_u64;
            let (mut sequence, mut published) = (2, now);
            for (wait, delay, publishes) in steps {
                now += wait;
                if publishes {
                    sequence += 2;
                    published = now;
                    now += delay;
                }
                let before = now;
                now += delay;
                bounds.take(before, now, sequence, published.checked_add_signed(offset).unwrap());
            }
            if let Some(skew) = bounds.skew() {
                prop_assert!(skew.offset_ns.abs_diff(offset) <= skew.within_ns);
            }
        }
    }
}
