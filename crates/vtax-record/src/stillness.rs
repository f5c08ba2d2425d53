//! Counters that are there, are on, and do not count.
//!
//! Some virtual machines have a PMU whose counters can be opened and enabled, whose time running
//! equals the time enabled, and whose values never move. No time says so; only work does: a CPU
//! that is not idle retires instructions, and takes cycles to do it, the recorder's own at the
//! least, since every row is made by a program.

/// Events that move in every interval in which a CPU is busy: those of all levels together.
pub const ALWAYS_MOVE: [&str; 2] = ["hw.instructions", "hw.cycles"];
/// Busy time without a movement after which a counter is believed to stand still. One nanosecond
/// would do, were the CPU's mode not looked at only at the end of each row.
const LIMIT_NS: u64 = 10_000_000;

/// Watches one counter of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stillness {
    now_ns: u64,
    longest_ns: u64,
}

impl Stillness {
    /// A row has this value; `busy_ns`: its length when the CPU was not idle, else 0.
    pub fn take(&mut self, value: Option<u64>, busy_ns: u64) {
        match value {
            // It was not on, which says nothing of it.
            None => {}
            Some(0) => {
                self.now_ns += busy_ns;
                self.longest_ns = self.longest_ns.max(self.now_ns);
            }
            Some(_) => self.now_ns = 0,
        }
    }

    /// The longest busy time in which the counter stood still, when it was long enough.
    pub fn found_ns(&self) -> Option<u64> {
        (self.longest_ns >= LIMIT_NS).then_some(self.longest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(rows: &[(Option<u64>, u64)]) -> Option<u64> {
        let mut stillness = Stillness::default();
        for (value, busy_ns) in rows {
            stillness.take(*value, *busy_ns);
        }
        stillness.found_ns()
    }

    #[test]
    fn a_counter_that_stands_still_while_the_cpu_works_is_found() {
        let row = LIMIT_NS / 2;
        assert_eq!(found(&[(Some(0), row), (Some(0), row)]), Some(2 * row));
        assert_eq!(found(&[(Some(0), row), (Some(0), 0)]), None, "idle");
        assert_eq!(found(&[(Some(0), row), (None, row)]), None, "not on");
        let moved = [(Some(0), row), (Some(1), row), (Some(0), row)];
        assert_eq!(found(&moved), None);
        let frozen_later = [(Some(7), row), (Some(0), 3 * row), (Some(7), row)];
        assert_eq!(found(&frozen_later), Some(3 * row));
        let between = [(Some(0), row), (None, row), (Some(0), row)];
        assert_eq!(
            found(&between),
            Some(2 * row),
            "it stood still when it was on"
        );
    }

    proptest! {
        #[test]
        fn a_counter_that_moves_is_never_blamed(
            rows in proptest::collection::vec((1_u64..1000, 0_u64..1 << 40), 0..100),
        ) {
            let rows: Vec<_> = rows.into_iter().map(|(value, ns)| (Some(value), ns)).collect();
            prop_assert_eq!(found(&rows), None);
        }
    }
}
