//! Finds counters that exist and are on, but do not count.
//!
//! Some virtual machines have a PMU whose counters can be opened and enabled, whose time running
//! equals the time enabled, and whose values never move. The times do not show this; only work
//! does: a CPU that is not idle retires instructions, and takes cycles to do it, at least the
//! recorder's own, since every row is made by a program.

use std::collections::BTreeMap;

use crate::record::difference::Interval;
use crate::record::row::Layer;

/// Events that advance in every interval in which a CPU is busy, over all levels together.
const ALWAYS_MOVE: [&str; 2] = ["hw.instructions", "hw.cycles"];
/// Busy time without a change after which a counter is taken to stand still. One nanosecond would
/// do if the running layer were not checked only at the end of each row.
const LIMIT_NS: u64 = 10_000_000;

/// Watches the counters that must advance.
#[derive(Debug)]
pub struct Watched {
    columns: Vec<(&'static str, usize)>,
    /// Keyed by column and CPU.
    counters: BTreeMap<(&'static str, u32), Stillness>,
}

impl Watched {
    /// `find` gives the column of an event, if it is recorded.
    pub fn new(find: impl Fn(&str) -> Option<usize>) -> Self {
        let columns = ALWAYS_MOVE.iter();
        Self {
            columns: columns
                .filter_map(|name| Some((*name, find(name)?)))
                .collect(),
            counters: BTreeMap::new(),
        }
    }

    /// Take the next interval of a CPU.
    pub fn take(&mut self, interval: &Interval) {
        let Interval { row, length_ns, .. } = interval;
        for (name, column) in &self.columns {
            let value = interval.columns.get(*column).copied().flatten();
            let counter = self.counters.entry((*name, row.cpu)).or_default();
            counter.take(value, *length_ns, row.layer);
        }
    }

    /// What the user should know: each counter that stood still, how long and where.
    pub fn warnings(&self) -> Vec<String> {
        let mut found: BTreeMap<&str, (u64, Vec<String>)> = BTreeMap::new();
        for ((name, cpu), counter) in &self.counters {
            if let Some(still_ns) = counter.found_ns() {
                let (longest_ns, cpus) = found.entry(name).or_default();
                *longest_ns = still_ns.max(*longest_ns);
                cpus.push(cpu.to_string());
            }
        }
        let warnings = found.into_iter().map(|(name, (ns, cpus))| {
            format!(
                "{name} did not move in {} ms of work although its counter was on (CPU {}): this \
                 PMU does not count",
                ns / 1_000_000,
                cpus.join(", ")
            )
        });
        warnings.collect()
    }
}

/// Watches one counter of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stillness {
    now_ns: u64,
    longest_ns: u64,
}

impl Stillness {
    /// Take the counter's value in an interval of this length and with this end.
    fn take(&mut self, value: Option<u64>, length_ns: u64, layer: Option<Layer>) {
        match value {
            // The counter was not on, which says nothing about it.
            None => {}
            Some(0) if layer == Some(Layer::Idle) => {}
            Some(0) => {
                self.now_ns = self.now_ns.saturating_add(length_ns);
                self.longest_ns = self.longest_ns.max(self.now_ns);
            }
            Some(_) => self.now_ns = 0,
        }
    }

    /// The longest busy time in which the counter stood still, if it was long enough.
    fn found_ns(&self) -> Option<u64> {
        (self.longest_ns >= LIMIT_NS).then_some(self.longest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::row::Row;
    use proptest::prelude::*;

    fn found(rows: &[(Option<u64>, u64)]) -> Option<u64> {
        ended(rows, Layer::HostUser)
    }

    fn ended(rows: &[(Option<u64>, u64)], layer: Layer) -> Option<u64> {
        let mut stillness = Stillness::default();
        for (value, length_ns) in rows {
            stillness.take(*value, *length_ns, Some(layer));
        }
        stillness.found_ns()
    }

    #[test]
    fn a_counter_that_stands_still_while_the_cpu_works_is_found() {
        let row = LIMIT_NS / 2;
        assert_eq!(found(&[(Some(0), row), (Some(0), row)]), Some(2 * row));
        assert_eq!(ended(&[(Some(0), 9 * row)], Layer::Idle), None);
        assert_eq!(ended(&[(Some(0), 9 * row)], Layer::Guest), Some(9 * row));
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

    #[test]
    fn a_frozen_counter_is_named_with_its_cpus() {
        let column = |name: &str| (name == "hw.cycles").then_some(1);
        let mut watched = Watched::new(column);
        let mut take = |cpu, cycles| {
            let mut words = [0; 11];
            words[6] = u64::from(cpu); // row.rs: CPU and process
            watched.take(&Interval {
                row: Row::from_words(&words).unwrap(),
                lost: 0,
                length_ns: 30_000_000,
                throttled_ns: 0,
                stack: None,
                columns: vec![Some(0), cycles],
            });
        };
        for cpu in [0_u32, 2, 3] {
            take(cpu, Some(0));
        }
        take(1, Some(1));
        take(4, None);
        take(3, Some(0));
        let [warning] = watched.warnings().try_into().unwrap();
        assert!(
            warning.starts_with("hw.cycles did not move in 60 ms of work"),
            "{warning}"
        );
        assert!(warning.contains("(CPU 0, 2, 3)"), "{warning}");
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
