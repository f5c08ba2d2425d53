//! Groups of counters that take turns, by whole intervals.
//!
//! The kernel rotates groups that do not fit the PMU at every tick of its own timer (about 4 ms),
//! so that hardly any interval would be counted as a whole. So only one group is on at a time, and
//! the recorder turns to the next group when enough rows have been made.
//!
//! A counter's value is valid for a row when its group was on from before the CPU's previous row
//! until after this row. One clock decides that, without a tolerance. A group counts as on from the
//! return of the call that enabled it until the beginning of the call that disables it. A row reads
//! its counters in one interrupt at its `time_ns`, which no such call can divide.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// The least rows that a CPU makes in a turn, averaged over the CPUs that make any. The row in
/// which a turn begins counts for no group, so at most one row in eight is lost.
pub const ROWS: u64 = 8;
/// The shortest turn. A turn costs two calls and two interrupts for each CPU, and wakes the
/// recorder. On two busy CPUs it took the kernel some 50 us, and with rows of 1 ms one in twenty is
/// lost to turns.
pub const SHORTEST: Duration = Duration::from_millis(20);
/// Changes that are remembered for a CPU. Rows are taken before every turn, so few are needed; a
/// row whose changes are forgotten has no value.
const REMEMBERED: usize = 64;

/// Which counters are on together: groups that take turns, and counters that need no turns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// Groups of which one is on at a time.
    pub turns: Vec<Vec<usize>>,
    /// Counters that are on all the time.
    pub always: Vec<usize>,
}

impl Groups {
    /// The number of a counter's group; counters that take no turns have the number after the last
    /// group.
    pub fn of(&self, counter: usize) -> usize {
        let turns = &self.turns;
        let found = turns.iter().position(|group| group.contains(&counter));
        found.unwrap_or(turns.len())
    }

    /// Do groups take turns?
    pub fn rotate(&self) -> bool {
        self.turns.len() > 1
    }

    /// The group that comes after this one.
    pub fn after(&self, group: usize) -> usize {
        (group + 1) % self.turns.len().max(1)
    }
}

/// A group of a CPU was enabled or disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    pub cpu: u32,
    pub group: usize,
    /// Enabled; otherwise disabled.
    pub on: bool,
    /// `CLOCK_MONOTONIC` after the group was enabled, or before it was disabled.
    pub at_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    group: usize,
    from_ns: u64,
    to_ns: Option<u64>,
}

/// When each group of each CPU was on.
#[derive(Debug, Default)]
pub struct Spans(HashMap<u32, VecDeque<Span>>);

impl Spans {
    /// Remember a change.
    pub fn switch(&mut self, switch: Switch) {
        let spans = self.0.entry(switch.cpu).or_default();
        if !switch.on {
            let open = spans.iter_mut().filter(|span| span.to_ns.is_none());
            for span in open.filter(|span| span.group == switch.group) {
                span.to_ns = Some(switch.at_ns);
            }
            return;
        }
        spans.push_back(Span {
            group: switch.group,
            from_ns: switch.at_ns,
            to_ns: None,
        });
        if spans.len() > REMEMBERED {
            // A group that is still on is needed, however long ago it was enabled.
            let oldest = spans.iter().position(|span| span.to_ns.is_some());
            oldest.map(|oldest| spans.remove(oldest));
        }
    }

    /// The groups of a CPU that were on for the whole time between two of its rows.
    pub fn whole(&self, cpu: u32, from_ns: u64, to_ns: u64) -> BTreeSet<usize> {
        let spans = self.0.get(&cpu).into_iter().flatten();
        spans
            .filter(|span| span.from_ns <= from_ns && span.to_ns.is_none_or(|end| to_ns < end))
            .map(|span| span.group)
            .collect()
    }
}

/// Decides when the next group has its turn.
#[derive(Debug, Default)]
pub struct Schedule {
    since_ns: u64,
    rows: u64,
    cpus: BTreeSet<u32>,
    turns: u64,
}

impl Schedule {
    /// Count a row.
    pub fn row(&mut self, cpu: u32) {
        self.rows += 1;
        self.cpus.insert(cpu);
    }

    /// Was this turn long enough? Without rows nothing waits for the next turn.
    pub fn due(&self, now_ns: u64) -> bool {
        let cpus = u64::try_from(self.cpus.len()).unwrap_or(u64::MAX);
        let long = u128::from(now_ns.saturating_sub(self.since_ns)) >= SHORTEST.as_nanos();
        long && self.rows >= ROWS.saturating_mul(cpus.max(1))
    }

    /// Record that the next turn has begun.
    pub fn turned(&mut self, now_ns: u64) {
        *self = Self {
            since_ns: now_ns,
            turns: self.turns + 1,
            ..Self::default()
        };
    }

    /// The number of turns that have ended.
    pub fn turns(&self) -> u64 {
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn switch(group: usize, on: bool, at_ns: u64) -> Switch {
        Switch {
            cpu: 0,
            group,
            on,
            at_ns,
        }
    }

    #[test]
    fn a_row_across_a_turn_is_of_neither_group() {
        let mut spans = Spans::default();
        spans.switch(switch(0, true, 10));
        spans.switch(switch(2, true, 10));
        let whole = |spans: &Spans, from, to| Vec::from_iter(spans.whole(0, from, to));
        assert_eq!(whole(&spans, 10, 20), [0, 2]);
        assert_eq!(whole(&spans, 9, 20), [0; 0], "it began before");
        assert_eq!(spans.whole(1, 10, 20), BTreeSet::new(), "another CPU");
        spans.switch(switch(0, false, 30));
        spans.switch(switch(1, true, 32));
        assert_eq!(whole(&spans, 20, 29), [0, 2], "a row that was taken late");
        assert_eq!(whole(&spans, 29, 30), [2]);
        assert_eq!(whole(&spans, 29, 40), [2]);
        assert_eq!(whole(&spans, 31, 40), [2]);
        assert_eq!(whole(&spans, 32, 40), [1, 2]);
    }

    #[test]
    fn every_group_has_its_turn() {
        let groups = Groups {
            turns: vec![vec![0, 3], vec![1], vec![2]],
            always: vec![4],
        };
        assert!(groups.rotate());
        assert_eq!([0, 1, 2].map(|group| groups.after(group)), [1, 2, 0]);
        assert_eq!([0, 1, 2, 3, 4].map(|one| groups.of(one)), [0, 1, 2, 0, 3]);
        assert_eq!(Groups::default().after(0), 0);
    }

    #[test]
    fn a_turn_is_long_enough_for_the_average_cpu() {
        let shortest = u64::try_from(SHORTEST.as_nanos()).unwrap();
        let mut schedule = Schedule::default();
        assert!(!schedule.due(u64::MAX), "no row, no turn");
        for _ in 0..2 * ROWS - 1 {
            schedule.row(0);
        }
        assert!(schedule.due(shortest) && !schedule.due(shortest - 1));
        schedule.row(1);
        assert!(schedule.due(shortest));
        schedule.row(2);
        assert!(!schedule.due(shortest), "17 rows of three CPUs");
        schedule.turned(shortest);
        assert!(!schedule.due(2 * shortest));
        assert_eq!(schedule.turns(), 1);
    }

    proptest! {
        /// Whatever the turns and rows are, a row has a value only for a group that was on in every
        /// nanosecond of the row, and rows within a turn do have one.
        #[test]
        fn a_value_is_of_the_whole_interval(
            turns in proptest::collection::vec((1_u64..50, 0_u64..5), 1..REMEMBERED),
            rows in proptest::collection::vec(1_u64..60, 1..60),
        ) {
            const GROUPS: usize = 3;
            let mut spans = Spans::default();
            // The group that is on in each nanosecond; none between two turns.
            let mut on: Vec<Option<usize>> = Vec::new();
            for (number, (long, between)) in turns.iter().enumerate() {
                let group = number % GROUPS;
                let at_ns = u64::try_from(on.len()).unwrap();
                spans.switch(switch(group, true, at_ns));
                on.extend((0..*long).map(|_| Some(group)));
                spans.switch(switch(group, false, at_ns + long));
                on.extend((0..*between).map(|_| None));
            }
            let mut before = 0;
            for length in rows {
                let now = before + length;
                let range = usize::try_from(before).unwrap()..=usize::try_from(now).unwrap();
                let whole = spans.whole(0, before, now);
                for group in 0..GROUPS {
                    let all = on.get(range.clone()).is_some_and(|range| {
                        range.iter().all(|one| *one == Some(group))
                    });
                    prop_assert_eq!(whole.contains(&group), all, "{} to {}", before, now);
                }
                before = now;
            }
        }
    }
}
