//! Reads a trace and writes the files of a recording, as a recording on this machine would.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::columns::{COLUMNS, column_classes};
use super::events;
use super::timeline::{Timeline, Totals};

use super::trace::{Records, TraceError};
use super::writer::{Writer, fixed};
use super::xenperf::{self, Growth, Perf};
use crate::record::clock::Pair;
use crate::record::files::{self, Folder};
use crate::record::skew::Skew;
use vtax_sys::terminal::Error;

#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The output of `xentrace`; it is read twice.
    pub trace: PathBuf,
    /// Ticks of the time stamp counter in a second, as Xen reports at its start (`Detected ... MHz
    /// processor`); the trace does not contain it.
    pub tsc_hz: u64,
    pub every: Duration,
    /// The outputs of `xenperf` before and after the trace.
    pub xenperf: Option<(PathBuf, PathBuf)>,
}

/// The result of an import: the content of `record.json`.
#[derive(Debug, Serialize)]
pub struct Imported {
    /// Version of the files' layout.
    pub format: u32,
    /// Where the rows come from.
    pub source: &'static str,
    /// A row ends after a fixed time: the trace has no other reference.
    pub reference: &'static str,
    /// The interval in nanoseconds.
    pub interval: u64,
    /// False: everything was traced, not only targets.
    pub targets_only: bool,
    /// CPUs with records.
    pub cpus: Vec<u32>,
    /// Ticks of the time stamp counter per second, as the caller gave them.
    pub tsc_hz: u64,
    /// Both clocks of dom0 at the beginning and at the end of a recording. `time_ns` of a row is
    /// the first pair's `monotonic_ns` and the ticks since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks: Option<[Pair; 2]>,
    /// A guest's clock minus dom0's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_clock: Option<GuestClock>,
    /// Rows in the file.
    pub rows: u64,
    /// Rows that were lost: always 0; lost records are in `lost_records`.
    pub lost: u64,
    /// Records of the trace.
    pub records: u64,
    /// Records that Xen had no room for.
    pub lost_records: u64,
    /// Domains that ran.
    pub vms: Vec<u32>,
    /// By how much the counters of `xenperf` grew, if its outputs were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xenperf: Option<Growth>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A guest's clock, from an exchange of messages before the recording.
#[derive(Debug, Serialize)]
pub struct GuestClock {
    /// The bound of its error in nanoseconds.
    pub skew_ns: u64,
    pub exchange: Skew,
}

#[derive(Debug, Serialize)]
struct Columns {
    columns: Vec<Column>,
    unavailable: Vec<Unavailable>,
}

#[derive(Debug, Serialize)]
struct Column {
    name: String,
    about: String,
    source: &'static str,
    unit: &'static str,
    kind: &'static str,
    sum: u64,
    after_last_row: u64,
    rows: u64,
    coverage: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Unavailable {
    name: &'static str,
    reason: String,
}

/// What must be known before the first row.
pub(super) struct Survey {
    /// The earliest time of any CPU: the file has the CPUs' records in blocks.
    pub(super) begin: u64,
    /// The same by the rows' clock.
    pub(super) begin_ns: u64,
    /// Does the trace have records of the column's class?
    pub(super) known: [bool; COLUMNS],
}

/// Make the files of a recording from the output of `xentrace`.
///
/// Fails when the trace or an output of `xenperf` cannot be read or has another format, when a row
/// would be shorter than a tick, and when the folder holds a recording already or cannot be
/// written.
pub fn import(source: &ImportOptions, out: &Path) -> Result<Imported, Error> {
    // Check this before anything is written, so that a file that is not a trace leaves nothing
    // behind.
    let ticks = ticks(source.tsc_hz, source.every)?;
    let xenperf = source.xenperf.as_ref().map(grown).transpose()?;
    let survey = survey(&source.trace)?;
    let mut rows = Rows::begin(out, survey, source.tsc_hz, ticks)?;
    let mut records = open(&source.trace)?;
    while let Some(record) = next(&mut records, &source.trace)? {
        rows.take(&record)?;
    }
    rows.finish(source.every, records.cut_off, |found| Imported {
        xenperf,
        ..found
    })
}

/// The rows of a recording, from records one after the other.
pub(super) struct Rows {
    folder: Folder,
    writer: Writer,
    timeline: Timeline,
    survey: Survey,
    tsc_hz: u64,
}

impl Rows {
    /// Begins a recording in the folder `out`, with rows of N ticks.
    pub(super) fn begin(
        out: &Path,
        survey: Survey,
        tsc_hz: u64,
        ticks: u64,
    ) -> Result<Self, Error> {
        let folder = Folder::create(out)?;
        let writer = Writer::begin(&folder, survey.known)?;
        let timeline = Timeline::new(tsc_hz, ticks, survey.begin, survey.begin_ns);
        Ok(Self {
            folder,
            writer,
            timeline,
            survey,
            tsc_hz,
        })
    }

    pub(super) fn take(&mut self, record: &super::Record) -> Result<(), Error> {
        match self.timeline.take(record) {
            Some(row) => self.writer.put(row, &self.timeline.totals().found),
            None => Ok(()),
        }
    }

    /// Completes the files; `complete` adds what else there is to tell.
    pub(super) fn finish(
        mut self,
        every: Duration,
        cut_off: bool,
        complete: impl FnOnce(Imported) -> Imported,
    ) -> Result<Imported, Error> {
        let last = self.timeline.finish();
        let totals = self.timeline.totals();
        for row in last {
            self.writer.put(row, &totals.found)?;
        }
        let rows = self.writer.finish(&self.folder, &totals.found)?;
        let columns = columns(totals, &self.survey, rows);
        self.folder.describe("events.json", &columns)?;
        let mut imported = complete(describe(totals, self.tsc_hz, every, rows));
        let said = warnings(totals, cut_off, imported.xenperf.as_ref());
        imported.warnings.splice(0..0, said);
        self.folder.describe("record.json", &imported)?;
        let stream = self.folder.stream();
        std::fs::remove_file(&stream).map_err(|error| files::failed(&stream, error))?;
        Ok(imported)
    }
}

/// The length of a row in ticks.
pub(super) fn ticks(tsc_hz: u64, every: Duration) -> Result<u64, Error> {
    let ticks = u128::from(tsc_hz) * every.as_nanos() / 1_000_000_000;
    let ticks = u64::try_from(ticks).ok().filter(|ticks| *ticks > 0);
    let reason = "the interval is shorter than a tick";
    ticks.ok_or_else(|| Error::misuse("--every", reason, "give more"))
}

fn grown((before, after): &(PathBuf, PathBuf)) -> Result<Growth, Error> {
    Ok(xenperf::growth(
        &read_xenperf(before)?,
        &read_xenperf(after)?,
    ))
}

type TraceFile = Records<File>;

fn open(trace: &Path) -> Result<TraceFile, Error> {
    let file = File::open(trace).map_err(|error| refused(trace, &error.into()))?;
    Ok(Records::new(file))
}

fn next(records: &mut TraceFile, trace: &Path) -> Result<Option<super::Record>, Error> {
    let record = records.next_record();
    record.map_err(|error| refused(trace, &error))
}

fn refused(trace: &Path, error: &TraceError) -> Error {
    let remedy = "name the output of xentrace (with -D, and -e all or classes)";
    Error::failure(trace.display().to_string(), error, remedy)
}

fn survey(trace: &Path) -> Result<Survey, Error> {
    let mut records = open(trace)?;
    let (mut begin, mut classes) = (None, 0);
    while let Some(record) = next(&mut records, trace)? {
        classes |= events::class(record.event);
        begin = begin.into_iter().chain(record.tsc).min();
    }
    Ok(Survey {
        begin: begin.unwrap_or(0),
        begin_ns: 0,
        known: column_classes().map(|class| classes & class == class),
    })
}

fn read_xenperf(path: &Path) -> Result<Perf, Error> {
    let failed = |reason: &dyn std::fmt::Display| {
        let remedy = "name the output of xenperf (with no option, -f or -p)";
        Error::failure(path.display().to_string(), reason, remedy)
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let perf = xenperf::parse(&text);
    if perf.is_empty() {
        return Err(failed(&"it has no counter"));
    }
    Ok(perf)
}

fn columns(totals: &Totals, survey: &Survey, rows: u64) -> Columns {
    let column = |name, about, unit, sum| Column {
        name,
        about,
        source: "xen",
        unit,
        kind: "delta",
        sum,
        after_last_row: 0,
        rows,
        coverage: None,
    };
    let mut sums = totals.sums.iter().copied().chain(std::iter::repeat(0));
    let (mut columns, mut unavailable) = (Vec::new(), Vec::new());
    for (((name, about, unit), sum), known) in fixed().zip(sums.by_ref()).zip(survey.known) {
        if known {
            columns.push(column(name.into(), about.into(), unit, sum));
        } else {
            let reason = "the trace has no record of its class: not traced, or nothing happened";
            unavailable.push(Unavailable {
                name,
                reason: reason.into(),
            });
        }
    }
    for (found, sum) in totals.found.iter().zip(sums) {
        columns.push(column(found.name(), found.about(), "count", sum));
    }
    Columns {
        columns,
        unavailable,
    }
}

fn describe(totals: &Totals, tsc_hz: u64, every: Duration, rows: u64) -> Imported {
    Imported {
        format: 1,
        source: "xentrace",
        reference: "wall_clock",
        interval: u64::try_from(every.as_nanos()).unwrap_or(u64::MAX),
        targets_only: false,
        cpus: totals.cpus.iter().copied().collect(),
        tsc_hz,
        clocks: None,
        guest_clock: None,
        rows,
        lost: 0,
        records: totals.records,
        lost_records: totals.lost,
        vms: totals.domains.iter().copied().collect(),
        xenperf: None,
        warnings: Vec::new(),
    }
}

fn warnings(totals: &Totals, cut_off: bool, xenperf: Option<&Growth>) -> Vec<String> {
    let mut warnings = Vec::new();
    if totals.lost > 0 {
        warnings.push(format!(
            "Xen lost {} records; what they would have counted is missing",
            totals.lost
        ));
    }
    if cut_off {
        warnings.push("the trace ends in the middle of a record".into());
    }
    let went_back = xenperf.map_or(0, |growth| growth.went_back.len());
    if went_back > 0 {
        warnings.push(format!(
            "{went_back} counters of xenperf went back: reset, or over 32 bits"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {

    use super::super::trace::encoder::Encoder;
    use super::*;

    const KHZ: u64 = 1_000_000;

    fn imported(
        bytes: &[u8],
        xenperf: Option<[&str; 2]>,
    ) -> (tempfile::TempDir, Result<Imported, Error>) {
        let folder = tempfile::tempdir().unwrap();
        let written = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let source = ImportOptions {
            trace: written("trace", bytes),
            tsc_hz: 1000 * KHZ,
            every: Duration::from_millis(1),
            xenperf: xenperf.map(|[before, after]| {
                (
                    written("before", before.as_bytes()),
                    written("after", after.as_bytes()),
                )
            }),
        };
        let result = import(&source, &folder.path().join("out"));
        (folder, result)
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
        let (folder, result) = imported(&file.0, None);
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
        let absent = events["unavailable"].as_array().unwrap();
        let names: Vec<&str> = absent
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert!(
            names.contains(&"xen.hypercall") && !names.contains(&"xen.hlt"),
            "{names:?}"
        );
    }

    #[test]
    fn what_is_no_trace_leaves_no_files() {
        let (folder, result) = imported(b"certainly no trace", None);
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("not an output of xentrace")
        );
        assert!(!folder.path().join("out").exists());
    }

    #[test]
    fn growth_of_xenperf_is_told() {
        let mut file = Encoder::default();
        file.cpu(0).record(0x81001, Some(KHZ), &[]);
        let texts = ["vmexits T= 5\nback T= 2\n", "vmexits T= 12\nback T= 1\n"];
        let (folder, result) = imported(&file.0, Some(texts));
        assert!(result.unwrap().warnings[0].contains("1 counters of xenperf went back"));
        let record = std::fs::read_to_string(folder.path().join("out/record.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record["xenperf"]["counters"]["vmexits"], 7);
        let (folder, result) =
            imported(&file.0, Some(["Function not implemented", "vmexits T= 1"]));
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("it has no counter")
        );
        assert!(!folder.path().join("out").exists());
    }
}
