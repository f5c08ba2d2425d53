//! Turns cumulative counters into counts for each interval; finds lost rows by gaps in the
//! sequence.

use std::collections::{BTreeSet, HashMap};

use crate::record::rotation::{Spans, Switch};
use crate::record::row::Row;

/// A column of the recording: the place of its counter in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// A counter of a program, in this slot.
    Counted(usize),
    /// A perf event: count, time enabled, time running, in three slots from this one on.
    Perf(usize),
    /// The steal clock.
    Clock(usize),
}

/// One row with differences instead of cumulative counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub row: Row,
    /// Rows of this CPU that were lost just before this one; their counts are in this row.
    pub lost: u64,
    /// Time counted on this CPU since its previous row.
    pub length_ns: u64,
    /// How long perf's throttling stopped the reference event in this interval.
    pub throttled_ns: u64,
    /// The number of the stack that it ended, where stacks are wanted.
    pub stack: Option<u32>,
    /// One value for each column; `None`: the counter did not count the whole time.
    pub columns: Vec<Option<u64>>,
}

/// Totals of a column over all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total {
    /// Sum of the column's values.
    pub sum: u64,
    /// Rows that have a value.
    pub rows: u64,
    /// The time of those rows.
    pub covered_ns: u64,
    /// Time that the counter was enabled.
    pub enabled_ns: u64,
    /// Time that the counter counted.
    pub running_ns: u64,
}

#[derive(Debug, Clone)]
struct Before {
    seq: u64,
    /// When the read counters (perf events, steal clock) were read; `None`: their counts at that
    /// time are unknown.
    read_ns: Option<u64>,
    run_ns: u64,
    /// How long the reference event was enabled.
    enabled_ns: u64,
    values: Vec<u64>,
}

/// Takes the rows of all CPUs; those of one CPU must come in order.
#[derive(Debug)]
pub struct Differences {
    locations: Vec<Location>,
    /// The group of each location, with which it takes turns.
    groups: Vec<usize>,
    spans: Spans,
    start: Start,
    before: HashMap<u32, Before>,
    totals: Vec<Total>,
    rows: u64,
    length_ns: u64,
    lost: u64,
}

/// The start of counting on every CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The value of `run_ns` at the start.
    pub run_ns: u64,
    /// When the read counters were at 0 for the rows. `None`: they begin to count before the
    /// reference event does, and have no value in the first row of a CPU.
    pub read_ns: Option<u64>,
}

impl Differences {
    /// `groups`: the group of counters of each location.
    pub fn new(locations: Vec<Location>, groups: Vec<usize>, start: Start) -> Self {
        Self {
            totals: vec![Total::default(); locations.len()],
            locations,
            groups,
            spans: Spans::default(),
            start,
            before: HashMap::new(),
            rows: 0,
            length_ns: 0,
            lost: 0,
        }
    }

    /// Record that a group of counters was enabled or disabled.
    pub fn switch(&mut self, switch: Switch) {
        self.spans.switch(switch);
    }

    /// The time of all rows.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Numbers of rows taken, and of rows known to be lost.
    pub fn rows(&self) -> (u64, u64) {
        (self.rows, self.lost)
    }

    /// The sums so far, in the order of the locations.
    pub fn totals(&self) -> &[Total] {
        &self.totals
    }

    /// Count rows that were lost after the last row of a CPU.
    pub fn end(&mut self, cpu: u32, overflows: u64) {
        let before = self.before.get(&cpu);
        let next = before.map_or(0, |before| before.seq.wrapping_add(1));
        self.lost += overflows.saturating_sub(next);
    }

    /// What a CPU's counters have counted since its last row, for each counted column.
    pub fn remainder(&self, cpu: u32, values: &[u64]) -> Vec<u64> {
        let before = self.before.get(&cpu);
        let difference = |slot: usize| {
            let old = before.and_then(|before| before.values.get(slot)).copied();
            let new = values.get(slot).copied().unwrap_or(0);
            new.saturating_sub(old.unwrap_or(0))
        };
        self.locations
            .iter()
            .map(|location| match location {
                Location::Counted(slot) => difference(*slot),
                Location::Perf(_) | Location::Clock(_) => 0,
            })
            .collect()
    }

    /// A CPU goes offline after its reference event was enabled for `enabled_ns`. The time and the
    /// counts since its last row belong to its next row.
    pub fn leave(&mut self, cpu: u32, enabled_ns: u64) {
        if let Some(before) = self.before.get_mut(&cpu) {
            let since = enabled_ns.saturating_sub(before.enabled_ns);
            before.enabled_ns = since;
        }
    }

    /// A CPU comes back at `now_ns`: the time in which it was away is in no row.
    pub fn resume(&mut self, cpu: u32, now_ns: u64) {
        let before = self.before.entry(cpu).or_insert_with(|| Before {
            seq: u64::MAX,
            read_ns: None,
            run_ns: 0,
            enabled_ns: 0,
            values: Vec::new(),
        });
        // What `leave` has stored.
        before.run_ns = now_ns.saturating_sub(before.enabled_ns);
        before.read_ns = None;
    }

    /// Take the next row of a CPU.
    pub fn take(&mut self, mut row: Row) -> Interval {
        let before = self.before.remove(&row.cpu).unwrap_or_else(|| Before {
            seq: u64::MAX,
            read_ns: self.start.read_ns,
            run_ns: self.start.run_ns,
            enabled_ns: 0,
            values: Vec::new(),
        });
        let lost = row.seq.wrapping_sub(before.seq).wrapping_sub(1);
        let mut after = Before {
            seq: row.seq,
            read_ns: Some(row.time_ns),
            run_ns: row.run_ns.max(before.run_ns),
            enabled_ns: row.enabled_ns,
            values: std::mem::take(&mut row.values),
        };
        // The overflow may interrupt a program between two of its additions. The value then seems
        // to go back, and the missing part is in the next row.
        for (new, old) in after.values.iter_mut().zip(&before.values) {
            *new = (*new).max(*old);
        }
        let delta = |slot: usize| {
            let old = before.values.get(slot).copied().unwrap_or(0);
            after.values.get(slot).map_or(0, |new| new - old)
        };
        let length_ns = after.run_ns - before.run_ns;
        let whole = before.read_ns.map_or_else(BTreeSet::new, |read_ns| {
            self.spans.whole(row.cpu, read_ns, row.time_ns)
        });
        let mut columns = Vec::with_capacity(self.locations.len());
        let locations = self.locations.iter().zip(&self.groups);
        for ((location, group), total) in locations.zip(&mut self.totals) {
            let value = match location {
                // The clock has run since the machine started: its first reading is its start
                // value.
                Location::Clock(_) if before.values.is_empty() => None,
                Location::Counted(slot) | Location::Clock(slot) => Some(delta(*slot)),
                Location::Perf(slot) => perf(*slot, whole.contains(group), delta, total),
            };
            total.take(value, length_ns);
            columns.push(value);
        }
        self.rows += 1;
        self.length_ns += length_ns;
        self.lost += lost;
        self.before.insert(row.cpu, after);
        Interval {
            row,
            lost,
            length_ns,
            throttled_ns: 0,
            stack: None,
            columns,
        }
    }
}

impl Total {
    fn take(&mut self, value: Option<u64>, length_ns: u64) {
        if let Some(value) = value {
            self.sum += value;
            self.rows += 1;
            self.covered_ns += length_ns;
        }
    }
}

/// `on`: the counter was enabled during the row's whole interval.
fn perf(slot: usize, on: bool, delta: impl Fn(usize) -> u64, total: &mut Total) -> Option<u64> {
    let (enabled, running) = (delta(slot + 1), delta(slot + 2));
    total.enabled_ns += enabled;
    total.running_ns += running;
    // Other users may have had the counter. A part of an interval is never scaled up to the whole.
    (on && enabled > 0 && running == enabled).then(|| delta(slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(cpu: u32, seq: u64, values: &[u64]) -> Row {
        Row {
            seq,
            interval: seq,
            time_ns: 1000 * (seq + 1),
            run_ns: 1000 * (seq + 1),
            enabled_ns: 0,
            running_ns: 0,
            cpu,
            pid: 1,
            tid: 1,
            vm: 0,
            vcpu: -1,
            layer: None,
            comm: String::new(),
            values: values.to_vec(),
            stack: Vec::new(),
        }
    }

    const START: Start = Start {
        run_ns: 0,
        read_ns: Some(0),
    };

    fn counted() -> Differences {
        Differences::new(vec![Location::Counted(0)], vec![0], START)
    }

    fn read(start: Start) -> Differences {
        let mut differences = Differences::new(vec![Location::Perf(0)], vec![0], start);
        switch(&mut differences, true, 0);
        differences
    }

    fn switch(differences: &mut Differences, on: bool, at_ns: u64) {
        let (cpu, group) = (0, 0);
        differences.switch(Switch {
            cpu,
            group,
            on,
            at_ns,
        });
    }

    #[test]
    fn a_lost_row_is_counted_and_loses_no_event() {
        let mut differences = counted();
        assert_eq!(differences.take(row(0, 0, &[5])).columns, [Some(5)]);
        let after = differences.take(row(0, 3, &[25]));
        assert_eq!((after.lost, after.length_ns), (2, 3000));
        assert_eq!(after.columns, [Some(20)]);
        differences.end(0, 6);
        assert_eq!(differences.rows(), (2, 4));
        assert_eq!(differences.remainder(0, &[26]), [1]);
        assert_eq!(differences.remainder(1, &[7]), [7]);
    }

    #[test]
    fn the_row_after_an_absence_is_as_long_as_the_cpu_was_there() {
        let mut differences = counted();
        differences.take(Row {
            enabled_ns: 70,
            ..row(0, 0, &[5])
        });
        // The CPU goes offline 20 ns after its last row.
        differences.leave(0, 90);
        differences.resume(0, 8_500);
        let after = differences.take(row(0, 8, &[7]));
        assert_eq!((after.length_ns, after.columns), (520, vec![Some(2)]));
        // A CPU that was offline at the start; overflows without a row still count as lost rows.
        differences.resume(1, 2_500);
        differences.end(1, 0);
        assert_eq!(differences.take(row(1, 2, &[3])).length_ns, 500);
        assert_eq!(differences.rows(), (3, 9));
    }

    #[test]
    fn a_counter_that_others_take_has_no_value_unless_it_counted_all_the_time() {
        let mut differences = read(START);
        let mut take = |seq, values: [u64; 3]| differences.take(row(0, seq, &values)).columns[0];
        assert_eq!(take(0, [10, 100, 100]), Some(10));
        assert_eq!(take(1, [15, 200, 150]), None, "half of the time");
        assert_eq!(take(2, [15, 300, 150]), None, "not at all");
        assert_eq!(take(3, [40, 400, 250]), Some(25));
        assert_eq!(take(4, [40, 400, 250]), None, "not enabled");
        let total = differences.totals()[0];
        assert_eq!((total.sum, total.rows, total.covered_ns), (35, 2, 2000));
        assert_eq!((total.enabled_ns, total.running_ns), (400, 250));
        assert_eq!(differences.length_ns(), 5000);
    }

    #[test]
    fn a_counter_whose_turn_it_is_not_has_no_value() {
        let mut differences = read(START);
        assert_eq!(
            differences.take(row(0, 0, &[10, 100, 100])).columns,
            [Some(10)]
        );
        switch(&mut differences, false, 1500);
        // The counter was off for the last part of this row, which its time enabled alone does not
        // show.
        assert_eq!(differences.take(row(0, 1, &[15, 150, 150])).columns, [None]);
        switch(&mut differences, true, 2500);
        assert_eq!(differences.take(row(0, 2, &[19, 200, 200])).columns, [None]);
        let whole = differences.take(row(0, 3, &[30, 300, 300]));
        assert_eq!(whole.columns, [Some(11)]);
        assert_eq!(differences.totals()[0].sum, 21);
    }

    #[test]
    fn what_was_read_before_the_first_interval_is_not_known() {
        let mut differences = read(Start {
            read_ns: None,
            ..START
        });
        let first = differences.take(row(0, 0, &[90, 900, 900]));
        assert_eq!(first.columns, [None], "it counted before the reference did");
        let second = differences.take(row(0, 1, &[95, 950, 950]));
        assert_eq!(second.columns, [Some(5)]);
        differences.leave(0, 0);
        differences.resume(0, 2_500);
        let back = differences.take(row(0, 2, &[97, 970, 970]));
        assert_eq!(back.columns, [None], "other counters began after its time");
        let after = differences.take(row(0, 3, &[99, 990, 990]));
        assert_eq!(after.columns, [Some(2)]);
    }

    #[test]
    fn the_steal_clock_begins_at_its_first_reading() {
        let mut differences = Differences::new(vec![Location::Clock(0)], vec![0], START);
        assert_eq!(differences.take(row(0, 0, &[9_000, 0, 0])).columns, [None]);
        assert_eq!(
            differences.take(row(0, 1, &[9_010, 0, 0])).columns,
            [Some(10)]
        );
        assert_eq!(differences.totals()[0].sum, 10);
    }

    proptest! {
        /// Whatever rows are lost, the remaining rows and the remainder add up to the counter.
        #[test]
        fn no_count_is_lost_with_a_row(
            steps in proptest::collection::vec((0_u32..3, 0_u64..50, any::<bool>()), 1..200),
        ) {
            let mut differences = counted();
            let mut counters = [0_u64; 3];
            let mut overflows = [0_u64; 3];
            let (mut sum, mut kept) = (0, 0);
            for (cpu, amount, arrives) in steps {
                let at = cpu as usize;
                counters[at] += amount;
                if arrives {
                    let taken = differences.take(row(cpu, overflows[at], &[counters[at]]));
                    sum += taken.columns[0].unwrap();
                    kept += 1;
                }
                overflows[at] += 1;
            }
            for cpu in 0..3 {
                differences.end(cpu, overflows[cpu as usize]);
                sum += differences.remainder(cpu, &[counters[cpu as usize]])[0];
            }
            prop_assert_eq!(sum, counters.iter().sum::<u64>());
            prop_assert_eq!(differences.rows(), (kept, overflows.iter().sum::<u64>() - kept));
        }
    }
}
