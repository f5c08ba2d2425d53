//! From the records of a trace to rows of time, as a recording on this machine has them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::events::{self, EVENTS};
use super::trace::{Record, Records, TraceError};
use crate::difference::Interval;
use crate::files::{self, Folder};
use crate::parquet;
use crate::row::{Mode, Row};
use crate::stream::{self, Batch, Lengths, Stream};
use vtax_error::Error;

/// The column of the time in guests, after those of the events.
const GUEST_TIME: &str = "xen.guest_time";
/// Rows that wait at most before they go to the file.
const BATCH_ROWS: usize = 8192;
/// `DOMID_IDLE` of Xen's public/xen.h: the CPU is idle.
const IDLE_DOMAIN: u32 = 0x7fff;

/// What was made of a trace; `record.json`.
#[derive(Debug, Serialize)]
pub struct Imported {
    /// Version of the files' layout.
    pub format: u32,
    /// Where the rows come from.
    pub source: &'static str,
    /// A row ends after so much time: the trace has no other reference.
    pub reference: &'static str,
    /// Nanoseconds.
    pub interval: u64,
    /// Not only targets.
    pub targets_only: bool,
    /// CPUs with records.
    pub cpus: Vec<u32>,
    /// Ticks of the time stamp counter in a second, as the caller said.
    pub tsc_hz: u64,
    /// Rows in the file.
    pub rows: u64,
    /// Rows that were lost: none, but see `lost_records`.
    pub lost: u64,
    /// Records of the trace.
    pub records: u64,
    /// Records that Xen had no room for.
    pub lost_records: u64,
    /// Domains that ran.
    pub vms: Vec<u32>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Columns {
    columns: Vec<Column>,
    unavailable: [(); 0],
}

#[derive(Debug, Serialize)]
struct Column {
    name: &'static str,
    about: &'static str,
    source: &'static str,
    unit: &'static str,
    kind: &'static str,
    sum: u64,
    after_last_row: u64,
    rows: u64,
    coverage: Option<f64>,
}

/// Make the files of a recording from the output of `xentrace`.
///
/// `tsc_hz`: what Xen says at its start (`Detected ... MHz processor`); the trace does not have it.
pub fn import(trace: &Path, tsc_hz: u64, every: Duration, out: &Path) -> Result<Imported, Error> {
    let refused = |error: TraceError| {
        let remedy = "name the output of xentrace (with -D, and -e all or classes)";
        Error::failure(trace.display().to_string(), error, remedy)
    };
    let ticks = u128::from(tsc_hz) * every.as_nanos() / 1_000_000_000;
    let ticks = u64::try_from(ticks).ok().filter(|ticks| *ticks > 0);
    let ticks = ticks.ok_or_else(|| {
        Error::misuse(
            "--every",
            "the interval is shorter than a tick",
            "give more",
        )
    })?;
    let file = File::open(trace).map_err(|error| refused(error.into()))?;
    let mut records = Records::new(BufReader::new(file));
    // Before anything is written: a file that is no trace leaves nothing.
    let first = records.next_record().map_err(refused)?;
    let folder = Folder::create(out)?;
    let mut writer = Writer::begin(&folder)?;
    let mut timeline = Timeline::new(tsc_hz, ticks);
    let mut next = first;
    while let Some(record) = next {
        if let Some(interval) = timeline.take(&record) {
            writer.put(&interval.0, interval.1)?;
        }
        next = records.next_record().map_err(refused)?;
    }
    for (interval, tsc) in timeline.finish() {
        writer.put(&interval, tsc)?;
    }
    let rows = writer.finish(&folder)?;
    folder.describe("events.json", &timeline.columns(rows))?;
    let imported = timeline.describe(rows, every, records.cut_off);
    folder.describe("record.json", &imported)?;
    std::fs::remove_file(folder.stream())
        .map_err(|error| files::failed(&folder.stream(), error))?;
    Ok(imported)
}

struct Writer {
    batch: Batch,
    stream: Stream,
    path: std::path::PathBuf,
}

impl Writer {
    fn begin(folder: &Folder) -> Result<Self, Error> {
        let mut names: Vec<String> = EVENTS.iter().map(|event| event.name.to_owned()).collect();
        names.push(GUEST_TIME.into());
        let schema = stream::schema(&names);
        let path = folder.stream();
        let stream = Stream::create(&path, &schema).map_err(|error| files::failed(&path, error))?;
        Ok(Self {
            batch: Batch::new(schema, Lengths::default()),
            stream,
            path,
        })
    }

    fn put(&mut self, interval: &Interval, tsc: u64) -> Result<(), Error> {
        self.batch.push(interval, tsc);
        if self.batch.rows() >= BATCH_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.stream.flush(&mut self.batch);
        flushed.map_err(|error| files::failed(&self.path, error))
    }

    fn finish(mut self, folder: &Folder) -> Result<u64, Error> {
        self.flush()?;
        let ended = self.stream.finish();
        ended.map_err(|error| files::failed(&self.path, error))?;
        let written = parquet::finish(&folder.stream(), &folder.rows());
        written
            .map(|written| written.rows)
            .map_err(|error| files::failed(&folder.rows(), error))
    }
}

/// What is going on, on all CPUs.
struct Timeline {
    tsc_hz: u64,
    ticks: u64,
    begin: Option<u64>,
    cpus: BTreeMap<u32, Cpu>,
    domains: std::collections::BTreeSet<u32>,
    sums: [u64; EVENTS.len() + 1],
    records: u64,
    lost: u64,
}

struct Cpu {
    seq: u64,
    start: u64,
    now: u64,
    counts: [u64; EVENTS.len() + 1],
    runs: Option<(u32, u32)>,
    entered: Option<u64>,
}

impl Timeline {
    fn new(tsc_hz: u64, ticks: u64) -> Self {
        Self {
            tsc_hz,
            ticks,
            begin: None,
            cpus: BTreeMap::new(),
            domains: std::collections::BTreeSet::new(),
            sums: [0; EVENTS.len() + 1],
            records: 0,
            lost: 0,
        }
    }

    /// Take a record; returns the row that ended before it.
    fn take(&mut self, record: &Record) -> Option<(Interval, u64)> {
        self.records += 1;
        self.lost += u64::from(record.lost().unwrap_or(0));
        // Before the first time nothing has a place.
        let begin = self.begin.or(record.tsc)?;
        self.begin = Some(begin);
        let ticks = self.ticks;
        let now = record.tsc.unwrap_or(begin);
        let cpu = self.cpus.entry(record.cpu).or_insert_with(|| Cpu {
            seq: 0,
            start: now,
            now,
            counts: [0; EVENTS.len() + 1],
            runs: None,
            entered: None,
        });
        // A record without a time is of the time of the one before it.
        cpu.now = cpu.now.max(now);
        let whole = (cpu.now - cpu.start) / ticks * ticks;
        let ended = (whole > 0).then(|| cpu.row(record.cpu, whole));
        cpu.count(record);
        if let Some((domain, _)) = cpu.runs.filter(|(domain, _)| *domain != IDLE_DOMAIN) {
            self.domains.insert(domain);
        }
        ended.map(|ended| self.interval(ended, begin))
    }

    /// The rows that have begun.
    fn finish(&mut self) -> Vec<(Interval, u64)> {
        let begin = self.begin.unwrap_or(0);
        let rows: Vec<Ended> = self
            .cpus
            .iter_mut()
            .map(|(number, cpu)| {
                let rest = cpu.now - cpu.start;
                cpu.row(*number, rest)
            })
            .collect();
        rows.into_iter()
            .map(|ended| self.interval(ended, begin))
            .collect()
    }

    fn interval(&mut self, mut ended: Ended, begin: u64) -> (Interval, u64) {
        let ns = |ticks: u64| {
            let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.tsc_hz.max(1));
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        if let Some(time) = ended.counts.last_mut() {
            *time = ns(*time);
        }
        for (sum, count) in self.sums.iter_mut().zip(ended.counts) {
            *sum = sum.saturating_add(count);
        }
        let at = ns(ended.tsc.saturating_sub(begin));
        let (domain, vcpu) = ended.runs.unwrap_or((0, 0));
        let guest = ended.runs.is_some() && domain != IDLE_DOMAIN;
        let row = Row {
            seq: ended.seq,
            interval: ended.tsc.saturating_sub(begin) / self.ticks,
            time_ns: at,
            run_ns: at,
            enabled_ns: at,
            running_ns: at,
            cpu: ended.cpu,
            pid: 0,
            tid: 0,
            vm: if guest { domain } else { 0 },
            vcpu: if guest { vcpu.cast_signed() } else { -1 },
            mode: match (ended.in_guest, domain) {
                (true, _) => Some(Mode::Guest),
                (false, IDLE_DOMAIN) => Some(Mode::Idle),
                (false, _) => None,
            },
            comm: format!("d{domain}v{vcpu}"),
            values: Vec::new(),
        };
        let interval = Interval {
            row,
            lost: 0,
            length_ns: ns(ended.length),
            columns: ended.counts.into_iter().map(Some).collect(),
        };
        (interval, ended.tsc)
    }

    fn columns(&self, rows: u64) -> Columns {
        let named = EVENTS
            .iter()
            .map(|event| (event.name, event.about, "count"));
        let time = (GUEST_TIME, "time between an entry and the next exit", "ns");
        let columns = named.chain([time]).zip(self.sums);
        Columns {
            columns: columns
                .map(|((name, about, unit), sum)| Column {
                    name,
                    about,
                    source: "xen",
                    unit,
                    kind: "delta",
                    sum,
                    after_last_row: 0,
                    rows,
                    coverage: None,
                })
                .collect(),
            unavailable: [],
        }
    }

    fn describe(&self, rows: u64, every: Duration, cut_off: bool) -> Imported {
        let mut warnings = Vec::new();
        if self.lost > 0 {
            warnings.push(format!(
                "Xen lost {} records; what they would have counted is missing",
                self.lost
            ));
        }
        if cut_off {
            warnings.push("the trace ends in the middle of a record".into());
        }
        Imported {
            format: 1,
            source: "xentrace",
            reference: "wall_clock",
            interval: u64::try_from(every.as_nanos()).unwrap_or(u64::MAX),
            targets_only: false,
            cpus: self.cpus.keys().copied().collect(),
            tsc_hz: self.tsc_hz,
            rows,
            lost: 0,
            records: self.records,
            lost_records: self.lost,
            vms: self.domains.iter().copied().collect(),
            warnings,
        }
    }
}

/// A row that has ended; times in ticks.
struct Ended {
    cpu: u32,
    seq: u64,
    tsc: u64,
    length: u64,
    counts: [u64; EVENTS.len() + 1],
    runs: Option<(u32, u32)>,
    in_guest: bool,
}

impl Cpu {
    /// End the row `length` ticks after its start.
    fn row(&mut self, number: u32, length: u64) -> Ended {
        let end = self.start + length;
        if let Some(entered) = self.entered.filter(|entered| *entered < end) {
            self.guest_time(end - entered);
            self.entered = Some(end);
        }
        let ended = Ended {
            cpu: number,
            seq: self.seq,
            tsc: end,
            length,
            counts: std::mem::replace(&mut self.counts, [0; EVENTS.len() + 1]),
            runs: self.runs,
            in_guest: self.entered.is_some(),
        };
        self.seq += 1;
        self.start = end;
        ended
    }

    fn count(&mut self, record: &Record) {
        if let Some(count) = events::column(record.event).and_then(|at| self.counts.get_mut(at)) {
            *count += 1;
        }
        match events::plain(record.event) {
            events::VMENTRY => self.entered = Some(self.now),
            events::VMEXIT => {
                if let Some(entered) = self.entered.take() {
                    self.guest_time(self.now - entered);
                }
            }
            _ => {}
        }
        if let Some(runs) = events::runs_now(record.event, record.extra()) {
            // Who is taken off the CPU is no longer in its guest, whatever was lost.
            self.entered = None;
            self.runs = Some(runs);
        }
    }

    fn guest_time(&mut self, ticks: u64) {
        if let Some(time) = self.counts.last_mut() {
            *time += ticks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::encoder::Encoder;
    use super::*;
    use proptest::prelude::*;

    const KHZ: u64 = 1_000_000;

    fn imported(bytes: &[u8]) -> (tempfile::TempDir, Result<Imported, Error>) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        std::fs::write(&trace, bytes).unwrap();
        let out = folder.path().join("out");
        let result = import(&trace, 1000 * KHZ, Duration::from_millis(1), &out);
        (folder, result)
    }

    fn intervals(file: &Encoder) -> Vec<Interval> {
        let mut timeline = Timeline::new(1000 * KHZ, KHZ);
        let mut records = Records::new(&file.0[..]);
        let mut rows = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            rows.extend(timeline.take(&record));
        }
        rows.extend(timeline.finish());
        rows.into_iter().map(|(interval, _)| interval).collect()
    }

    fn value(interval: &Interval, name: &str) -> u64 {
        let at = EVENTS.iter().position(|event| event.name == name);
        interval.columns[at.unwrap_or(EVENTS.len())].unwrap()
    }

    #[test]
    fn rows_have_what_happened_in_their_time() {
        let mut file = Encoder::default();
        file.cpu(2)
            .record(0x21101, Some(5000 * KHZ), &[0x0003_0001]);
        file.record(0x81001, Some(5000 * KHZ + 100_000), &[]);
        file.record(0x81102, Some(5000 * KHZ + 400_000), &[48, 1, 2]);
        file.record(0x82021, None, &[1]);
        // The guest runs on over the ends of two rows.
        file.record(0x81001, Some(5000 * KHZ + 600_000), &[]);
        file.record(0x81102, Some(5002 * KHZ + 500_000), &[10, 1, 2]);
        let rows = intervals(&file);
        assert_eq!(rows.len(), 2);
        let (first, last) = (&rows[0], &rows[1]);
        assert_eq!((first.length_ns, last.length_ns), (2_000_000, 500_000));
        assert_eq!((first.row.vm, first.row.vcpu, first.row.cpu), (3, 1, 2));
        assert_eq!((first.row.mode, last.row.mode), (Some(Mode::Guest), None));
        assert_eq!(
            (value(first, "xen.vmexit"), value(last, "xen.vmexit")),
            (1, 1)
        );
        assert_eq!(
            (value(first, "xen.vmentry"), value(first, "xen.npf")),
            (2, 1)
        );
        assert_eq!(value(first, GUEST_TIME), 300_000 + 1_400_000);
        assert_eq!(value(last, GUEST_TIME), 500_000);
        assert_eq!((first.row.seq, last.row.seq), (0, 1));
    }

    #[test]
    fn the_files_are_those_of_a_recording() {
        let mut file = Encoder::default();
        for cpu in 0..2 {
            file.cpu(cpu).record(0x21101, Some(KHZ), &[cpu << 16]);
            for step in 1..=10_u64 {
                file.record(0x81001, Some(KHZ * (1 + step)), &[]);
                file.record(0x81102, Some(KHZ * (1 + step) + 1000), &[1, 2, 3]);
            }
        }
        file.record(0x1f001, Some(20 * KHZ), &[17, 0, 0, 0]);
        let (folder, result) = imported(&file.0);
        let imported = result.unwrap();
        assert_eq!((imported.lost_records, imported.records), (17, 43));
        assert_eq!((imported.cpus, imported.vms), (vec![0, 1], vec![0, 1]));
        assert!(imported.warnings[0].contains("lost 17 records"));
        let out = folder.path().join("out");
        assert!(out.join("intervals.parquet").exists() && !out.join("intervals.arrows").exists());
        let events = std::fs::read_to_string(out.join("events.json")).unwrap();
        let events: serde_json::Value = serde_json::from_str(&events).unwrap();
        let columns = events["columns"].as_array().unwrap();
        let exits = columns
            .iter()
            .find(|column| column["name"] == "xen.vmexit")
            .unwrap();
        assert_eq!(exits["sum"], 20);
    }

    #[test]
    fn what_is_no_trace_leaves_no_files() {
        let (folder, result) = imported(b"certainly no trace");
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("no output of xentrace")
        );
        assert!(!folder.path().join("out").exists());
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
            let before = steps.iter().take_while(|(_, _, timed, _)| !timed).count();
            let rows = intervals(&file);
            let counted: u64 = rows.iter().flat_map(|row| &row.columns[..EVENTS.len()])
                .flatten().sum();
            // Records before the first time have no place.
            prop_assert!(counted <= steps.len() as u64);
            prop_assert_eq!(counted + before as u64, steps.len() as u64);
            prop_assert!(rows.iter().all(|row| value(row, GUEST_TIME) <= row.length_ns));
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = Encoder::default();
            file.cpu(0);
            file.0.extend(&bytes);
            let mut timeline = Timeline::new(1000 * KHZ, KHZ);
            let mut records = Records::new(&file.0[..]);
            while let Ok(Some(record)) = records.next_record() {
                timeline.take(&record);
            }
            timeline.finish();
        }
    }
}
