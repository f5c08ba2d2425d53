//! Turns the records of a trace into rows of time, with what happened in them.

use std::collections::{BTreeMap, BTreeSet};

use super::columns::{COLUMNS, GUEST_TIME, RUN_TIME};
use super::cpu::{Cpu, Ended, IDLE_DOMAIN};
use super::events::{Found, Kind};
use super::trace::Record;
use crate::record::difference::Interval;
use crate::record::row::{Layer, Row};

/// How many events, and columns of what is found, are at hand.
const RECENT: usize = 256;
/// The most columns for what is found: 2^28 events could be. The others have one together.
const MOST_FOUND: usize = 160;
/// A row, and the time stamp counter at its end.
pub(super) type TimedRow = (Interval, u64);

/// What happens on all CPUs.
pub(super) struct Timeline {
    tsc_hz: u64,
    ticks: u64,
    begin: u64,
    /// The time of `begin`.
    begin_ns: u64,
    cpus: BTreeMap<u32, Cpu>,
    places: BTreeMap<Found, usize>,
    /// What was looked for last, each at the place of its number's lowest bits.
    kinds: Vec<(u32, Kind)>,
    recent: Vec<Option<(Found, usize)>>,
    totals: Totals,
}

/// Totals of the whole trace.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// CPUs with records.
    pub cpus: BTreeSet<u32>,
    /// Domains that ran.
    pub domains: BTreeSet<u32>,
    /// The sum of each column.
    pub sums: Vec<u64>,
    /// The columns after the first [`COLUMNS`].
    pub found: Vec<Found>,
    pub records: u64,
    /// Records that Xen had no room for.
    pub lost: u64,
}

impl Timeline {
    /// `tsc_hz`: ticks in a second; `ticks`: the length of a row; `begin`: the first time, which is
    /// `begin_ns` of the rows' clock.
    pub(super) fn new(tsc_hz: u64, ticks: u64, begin: u64, begin_ns: u64) -> Self {
        Self {
            tsc_hz,
            ticks,
            begin,
            begin_ns,
            cpus: BTreeMap::new(),
            places: BTreeMap::new(),
            kinds: vec![(0, Kind::of(0)); RECENT],
            recent: vec![None; RECENT],
            totals: Totals::default(),
        }
    }

    /// Take a record; returns the row that ended before it.
    pub(super) fn take(&mut self, record: &Record) -> Option<TimedRow> {
        let kind = self.kind(record.event);
        let lost = record.lost();
        self.totals.records += 1;
        self.totals.lost += lost.map_or(0, |lost| u64::from(lost.records));
        let found = kind.found(record.extra());
        let found = found.map(|found| self.place(found));
        let ticks = self.ticks;
        let now = record.tsc.unwrap_or(self.begin);
        let cpu = self.cpus.entry(record.cpu).or_insert_with(|| {
            self.totals.cpus.insert(record.cpu);
            Cpu::begin(now)
        });
        // A record without a time has the time of the record before it.
        cpu.now = cpu.now.max(now);
        if let Some(lost) = lost {
            cpu.loses(lost.first_tsc);
        }
        let since = cpu.now - cpu.start;
        let ended = (since >= ticks).then(|| cpu.row(record.cpu, since / ticks * ticks));
        let before = cpu.runs;
        cpu.count(record, kind);
        if let Some(place) = found {
            cpu.add(place, 1);
        }
        let runs = cpu.runs.filter(|_| cpu.runs != before);
        if let Some((domain, _)) = runs.filter(|(domain, _)| *domain != IDLE_DOMAIN) {
            self.totals.domains.insert(domain);
        }
        ended.map(|ended| self.interval(ended))
    }

    fn kind(&mut self, event: u32) -> Kind {
        // Flags and classes are above the lowest bits.
        let at = (event ^ event >> 8) as usize % RECENT;
        match self.kinds.get_mut(at) {
            Some((known, kind)) if *known == event => *kind,
            Some(known) => {
                *known = (event, Kind::of(event));
                known.1
            }
            None => Kind::of(event),
        }
    }

    /// The column of what is found.
    fn place(&mut self, found: Found) -> usize {
        let at = found.number() as usize % RECENT;
        match self.recent.get(at) {
            Some(Some((known, place))) if *known == found => *place,
            _ => {
                let place = self.place_again(found);
                if let Some(recent) = self.recent.get_mut(at) {
                    *recent = Some((found, place));
                }
                place
            }
        }
    }

    fn place_again(&mut self, found: Found) -> usize {
        if let Some(place) = self.places.get(&found) {
            return *place;
        }
        if self.totals.found.len() >= MOST_FOUND && found != Found::Rest {
            return self.place_again(Found::Rest);
        }
        let place = COLUMNS + self.totals.found.len();
        self.totals.found.push(found);
        self.places.insert(found, place);
        place
    }

    /// End the rows that have begun.
    pub(super) fn finish(&mut self) -> Vec<TimedRow> {
        let rows: Vec<Ended> = self
            .cpus
            .iter_mut()
            .map(|(number, cpu)| {
                let rest = cpu.now - cpu.start;
                cpu.row(*number, rest)
            })
            .collect();
        rows.into_iter().map(|ended| self.interval(ended)).collect()
    }

    /// Totals of the records so far; the sums cover only rows that have ended.
    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    fn interval(&mut self, mut ended: Ended) -> TimedRow {
        let ns = |ticks: u64| {
            let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.tsc_hz.max(1));
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        for place in [GUEST_TIME, RUN_TIME] {
            if let Some(time) = ended.counts.get_mut(place) {
                *time = ns(*time);
            }
        }
        let sums = &mut self.totals.sums;
        sums.resize(sums.len().max(ended.counts.len()), 0);
        for (sum, count) in sums.iter_mut().zip(&ended.counts) {
            *sum = sum.saturating_add(*count);
        }
        let since_begin = ended.tsc.saturating_sub(self.begin);
        let interval = Interval {
            row: ended.describe(
                since_begin / self.ticks,
                self.begin_ns.saturating_add(ns(since_begin)),
            ),
            lost: 0,
            length_ns: ns(ended.length),
            throttled_ns: 0,
            stack: None,
            columns: ended.counts.into_iter().map(Some).collect(),
        };
        (interval, ended.tsc)
    }
}

impl Ended {
    fn describe(&self, interval: u64, at: u64) -> Row {
        let idle = self.runs.is_some_and(|(domain, _)| domain == IDLE_DOMAIN);
        let guest = self.runs.filter(|_| !idle);
        Row {
            seq: self.seq,
            interval,
            time_ns: at,
            run_ns: at,
            enabled_ns: at,
            running_ns: at,
            cpu: self.cpu,
            pid: 0,
            tid: 0,
            vm: guest.map_or(0, |(domain, _)| domain),
            vcpu: guest.map_or(-1, |(_, vcpu)| vcpu.cast_signed()),
            layer: match (self.in_guest, idle) {
                (true, _) => Some(Layer::Guest),
                (false, true) => Some(Layer::Idle),
                (false, false) => None,
            },
            comm: self
                .runs
                .map_or_else(String::new, |(domain, vcpu)| format!("d{domain}v{vcpu}")),
            values: Vec::new(),
            stack: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::OTHERS;
    use super::super::events::EVENTS;
    use super::super::trace::Records;
    use super::super::trace::encoder::Encoder;
    use super::*;
    use proptest::prelude::*;

    const KHZ: u64 = 1_000_000;

    /// The first time in the file.
    fn begin(file: &Encoder) -> u64 {
        let mut records = Records::new(&file.0[..]);
        let times =
            std::iter::from_fn(|| records.next_record().unwrap()).filter_map(|record| record.tsc);
        times.min().unwrap_or(0)
    }

    fn intervals(file: &Encoder) -> Vec<Interval> {
        let mut timeline = Timeline::new(1000 * KHZ, KHZ, begin(file), 0);
        let mut records = Records::new(&file.0[..]);
        let mut rows = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            rows.extend(timeline.take(&record));
        }
        rows.extend(timeline.finish());
        rows.into_iter().map(|(interval, _)| interval).collect()
    }

    fn value(interval: &Interval, name: &str) -> u64 {
        let names = EVENTS.iter().map(|event| event.name);
        let at = names
            .chain(OTHERS.map(|(name, ..)| name))
            .position(|one| one == name);
        interval.columns[at.unwrap()].unwrap()
    }

    #[test]
    fn rows_have_what_happened_in_their_time() {
        let mut file = Encoder::default();
        file.cpu(2)
            .record(0x21101, Some(5000 * KHZ), &[0x0003_0001]);
        file.record(0x81001, Some(5000 * KHZ + 100_000), &[]);
        file.record(0x81102, Some(5000 * KHZ + 400_000), &[48, 1, 2]);
        file.record(0x82021, None, &[1]);
        // The guest goes on running over the ends of two rows.
        file.record(0x81001, Some(5000 * KHZ + 600_000), &[]);
        file.record(0x81102, Some(5002 * KHZ + 500_000), &[10, 1, 2]);
        let rows = intervals(&file);
        assert_eq!(rows.len(), 2);
        let (first, last) = (&rows[0], &rows[1]);
        assert_eq!((first.length_ns, last.length_ns), (2_000_000, 500_000));
        assert_eq!((first.row.vm, first.row.vcpu, first.row.cpu), (3, 1, 2));
        assert_eq!(
            (first.row.layer, last.row.layer),
            (Some(Layer::Guest), None)
        );
        assert_eq!(
            (value(first, "xen.vmexit"), value(last, "xen.vmexit")),
            (1, 1)
        );
        assert_eq!(
            (value(first, "xen.vmentry"), value(first, "xen.npf")),
            (2, 1)
        );
        assert_eq!(value(first, "xen.guest_time"), 300_000 + 1_400_000);
        assert_eq!(value(last, "xen.guest_time"), 500_000);
        assert_eq!((first.row.seq, last.row.seq), (0, 1));
    }

    #[test]
    fn a_cpu_whose_block_stands_later_may_begin_earlier() {
        let mut file = Encoder::default();
        file.cpu(0).record(0x81001, Some(9 * KHZ), &[]);
        file.cpu(1).record(0x81001, Some(2 * KHZ), &[]);
        file.record(0x81102, Some(3 * KHZ), &[1, 2, 3]);
        let rows = intervals(&file);
        let ends: Vec<_> = rows
            .iter()
            .map(|row| (row.row.cpu, row.row.time_ns))
            .collect();
        assert!(ends.starts_with(&[(1, 1_000_000)]), "{ends:?}");
        assert!(ends.contains(&(0, 7_000_000)), "{ends:?}");
    }

    #[test]
    fn of_the_time_of_lost_records_nothing_is_known() {
        let mut file = Encoder::default();
        // Domain 3 begins, enters its guest, and loses records from 400 us on.
        file.cpu(0).record(0x21101, Some(KHZ), &[0x0003_0000]);
        file.record(0x81001, Some(KHZ + 100_000), &[]);
        let first = u32::try_from(KHZ + 400_000).unwrap();
        // At 2.5 ms domain 5 begins to run; it goes idle 100 us later.
        file.record(0x1f001, Some(KHZ + 2_500_000), &[9, 0x0001_0005, first, 0]);
        file.record(0x21021, Some(KHZ + 2_600_000), &[0x0005_0001]);
        file.record(0x21101, Some(KHZ + 2_600_000), &[0x7fff_0000]);
        file.record(0x82013, Some(KHZ + 2_700_000), &[]);
        let rows = intervals(&file);
        let sum = |name| rows.iter().map(|row| value(row, name)).sum::<u64>();
        assert_eq!(sum("xen.guest_time"), 300_000);
        assert_eq!(sum("xen.run_time"), 400_000 + 100_000);
        assert_eq!(rows.last().unwrap().row.layer, Some(Layer::Idle));
    }

    proptest! {
        /// Whatever a trace says, every event is in one row.
        #[test]
        fn no_event_is_lost_between_rows(
            steps in proptest::collection::vec(
                (0_u32..3, 0_u64..3 * KHZ, any::<bool>(), 0_usize..3), 1..200),
        ) {
            let mut file = Encoder::default();
            let mut now = 7_u64;
            for (cpu, wait, timed, kind) in &steps {
                now += wait;
                let event = [0x81001, 0x81102, 0x82013][*kind];
                file.cpu(*cpu).record(event, timed.then_some(now), &[]);
            }
            let rows = intervals(&file);
            let counted: u64 = rows.iter().flat_map(|row| &row.columns[..EVENTS.len()])
                .flatten().sum();
            prop_assert_eq!(counted, steps.len() as u64);
            prop_assert!(rows.iter().all(|row| value(row, "xen.guest_time") <= row.length_ns));
        }

        /// Events without a name have columns of their own, and together one when there are too
        /// many.
        #[test]
        fn no_event_is_without_a_column(
            steps in proptest::collection::vec(
                (0_u32..3, prop_oneof![0x2_0000_u32..0x2_0010, 0x2_0000_u32..0x0fff_ffff],
                 proptest::collection::vec(any::<u32>(), 0..=7)), 1..400),
        ) {
            let mut timeline = Timeline::new(1000 * KHZ, KHZ, 0, 0);
            let (mut expected, mut named, mut file) = (BTreeMap::new(), 0, Encoder::default());
            for (now, (cpu, event, extra)) in (0_u64..).zip(&steps) {
                file.cpu(*cpu).record(*event, Some(now * KHZ / 10), extra);
                if Kind::of(*event).column.is_some() {
                    named += 1;
                } else {
                    *expected.entry(Kind::of(*event).found(&[]).unwrap().name()).or_insert(0) += 1;
                }
            }
            let mut records = Records::new(&file.0[..]);
            let mut rows = Vec::new();
            while let Some(record) = records.next_record().unwrap() {
                rows.extend(timeline.take(&record));
            }
            rows.extend(timeline.finish());
            let totals = timeline.totals();
            let events: u64 = totals.sums[..EVENTS.len()].iter().sum();
            prop_assert_eq!(events, named);
            let found = totals.found.iter().map(|found| found.name());
            let mut sums: BTreeMap<_, _> = found.zip(totals.sums[COLUMNS..].to_vec()).collect();
            sums.retain(|name, _| name.starts_with("xen.0x") || name == "xen.rest");
            prop_assert!(totals.found.len() <= MOST_FOUND + 1);
            if let Some(rest) = sums.remove("xen.rest") {
                prop_assert!(totals.found.len() == MOST_FOUND + 1 && rest > 0);
                prop_assert!(sums.iter().all(|(name, count)| expected.get(name) == Some(count)));
            } else {
                prop_assert_eq!(&sums, &expected);
            }
            // The rows have the same sums.
            for (column, sum) in totals.sums.iter().enumerate() {
                let values = rows.iter().filter_map(|(row, _)| row.columns.get(column));
                prop_assert_eq!(values.flatten().sum::<u64>(), *sum);
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = Encoder::default();
            file.cpu(0);
            file.0.extend(&bytes);
            let mut timeline = Timeline::new(1000 * KHZ, KHZ, 0, 0);
            let mut records = Records::new(&file.0[..]);
            while let Ok(Some(record)) = records.next_record() {
                timeline.take(&record);
            }
            timeline.finish();
        }
    }
}
