//! `events.json` and `record.json`: the descriptions of the columns and of the recording.

mod warnings;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use libbpf_rs::query::ProgInfoIter;
use serde::Serialize;

use crate::record::clock::Pair;
use crate::record::consumer::Consumer;
use crate::record::difference::Location;
use crate::record::files::{self, Folder};
use crate::record::hotplug::Gap;
use crate::record::interval::Interval;
use crate::record::online::Cpus;
use crate::record::page_samples::PageSamples;
use crate::record::parquet;
use crate::record::plan::{Columns, Unavailable};
use crate::record::program::Programs;
use crate::record::reference::Reference;
use crate::record::reference::running::Running;
use crate::record::reference::throttling::Throttling;
use crate::record::ring::Shape;
use crate::record::rotation::Groups;
use crate::record::skew::Skew;
use crate::record::sources::calls::others::OtherCall;
use crate::record::sources::{Unit, calls};
use crate::record::stacks;
use crate::record::target;
use crate::record::vcpu_clock::VcpuClock;
use vtax_sys::terminal::Error;

/// How a recording ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// `time`, `signal` or `process`.
    pub reason: &'static str,
    /// When the reference event stopped.
    pub monotonic_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<target::End>,
}

/// The kernel's statistics of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    pub name: String,
    /// The number of runs; null when the runs were not measured.
    pub runs: Option<u64>,
    /// Nanoseconds of all runs together; null when the runs were not measured.
    pub run_ns: Option<u64>,
    /// Events that it missed because it was already running on that CPU.
    pub missed: u64,
}

/// What is known at the end of a recording.
pub struct Facts<'a> {
    pub reference: Reference,
    /// The interval that was asked for.
    pub interval: Interval,
    pub cpus: &'a Cpus,
    /// Sizes of the rings.
    pub shape: Shape,
    pub columns: &'a Columns,
    /// The clocks at the start.
    pub begin: Pair,
    /// How the recording ended.
    pub end: End,
    pub programs: Vec<Program>,
    /// The most frequent calls without a class; `None`: they were not counted.
    pub other_calls: Option<Vec<OtherCall>>,
    /// The limit of counters that was asked for.
    pub counters: Option<NonZeroUsize>,
    /// Which counters counted together.
    pub groups: &'a Groups,
    /// How long the reference events had counters.
    pub running: &'a Running,
    /// When perf stopped the reference events.
    pub throttling: &'a Throttling,
    /// Overflows per second that the kernel allowed, at the start and at the end.
    pub max_sample_rate: [Option<u64>; 2],
    /// Why the reference is not instructions, where instructions are possible.
    pub no_instructions: Option<String>,
    /// Were only targets counted?
    pub filter: bool,
    /// The guest's clock by an exchange of messages.
    pub exchange: Option<Skew>,
    /// When CPUs were offline.
    pub gaps: Vec<Gap>,
    /// Why no control group limits the command's processes, where one should.
    pub unlimited: Option<String>,
    /// Call sites, where they were counted.
    pub call_sites: Option<stacks::calls::Counted>,
    /// The stacks of rows, where they were taken.
    pub stacks: Option<stacks::samples::Counted>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Delta,
}

#[derive(Debug, Serialize)]
struct Column<'a> {
    name: &'a str,
    about: &'a str,
    source: &'a str,
    unit: Unit,
    kind: Kind,
    /// Sum of the column.
    sum: u64,
    /// Counted after the last row of each CPU; null where the counter is read, not counted.
    after_last_row: Option<u64>,
    /// Rows that have a value.
    rows: u64,
    /// The share of the time of all rows that belongs to rows with a value; null without rows, and
    /// where rows only have a value when there is a new sample.
    coverage: Option<f64>,
    /// The share of its perf event's enabled time in which the event counted.
    #[serde(skip)]
    running: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Events<'a> {
    columns: Vec<Column<'a>>,
    unavailable: &'a [Unavailable],
}

/// How far the guest's clock is from this machine's, by each method that is available.
#[derive(Debug, Serialize)]
pub struct GuestClock {
    /// The smallest of their bounds in nanoseconds; null when there is no bound.
    pub skew_ns: Option<u64>,
    /// From the times in the guest's page; null without a page.
    pub page: Option<PageClock>,
    /// From an exchange of messages before the recording (`--guest-clock`).
    pub exchange: Option<Skew>,
    /// From the offsets that KVM has set: exact except for `tsc_within`.
    pub vcpus: Vec<VcpuClock>,
}

/// The guest's clock according to its page.
#[derive(Debug, Serialize)]
pub struct PageClock {
    /// The bound at the end of the recording.
    #[serde(flatten)]
    pub last: Skew,
    /// The widest bound during the recording.
    pub widest_ns: u64,
}

/// Groups of counters that took turns. A column is null in rows in which its group was not on all
/// the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rotation {
    /// The columns of each group.
    pub groups: Vec<Vec<String>>,
    /// How often the next group had its turn.
    pub turns: u64,
}

/// `record.json`.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Version of the files' layout.
    pub format: u32,
    pub reference: Reference,
    /// The share of the time of all CPUs in which the reference event had its counter; null when it
    /// was not enabled.
    pub reference_running: Option<f64>,
    /// How often perf's throttling stopped the reference event.
    pub throttled: u64,
    /// The nanoseconds of all stops; the part before a row is in the row's `throttled_ns`.
    pub throttled_ns: u64,
    /// `kernel.perf_event_max_sample_rate` at the start and at the end; null where the kernel does
    /// not tell.
    pub max_sample_rate: [Option<u64>; 2],
    /// The wanted interval: instructions, nanoseconds or events.
    pub interval: u64,
    /// Were only the targets counted?
    pub targets_only: bool,
    /// CPUs that were online when the recording began.
    pub cpus: Vec<u32>,
    /// When CPUs were offline; an offline CPU makes no rows.
    pub cpus_away: Vec<Gap>,
    /// The clock of `time_ns`.
    pub clock: &'static str,
    /// Both clocks at the start and at the last row.
    pub clocks: [Pair; 2],
    /// Ticks of the time stamp counter per second; null when there was no row.
    pub tsc_hz: Option<u64>,
    /// Bound of the error of `tsc`, in ticks.
    pub tsc_within: u64,
    /// How the recording ended.
    pub end: End,
    /// Rows in the file.
    pub rows: u64,
    /// Rows that were lost; their counts are in the rows that follow.
    pub lost: u64,
    /// Lost rows that found the ring full.
    pub lost_ring_full: u64,
    /// The limit of counters that was asked for.
    pub counters: Option<NonZeroUsize>,
    /// Set when there were too few counters for all events.
    pub rotation: Option<Rotation>,
    /// Rows in the ring of one CPU.
    pub ring_rows: u32,
    /// Bytes of a row in the ring.
    pub row_bytes: u32,
    /// Bytes of a row in the finished file; null when there is no row.
    pub file_bytes_per_row: Option<f64>,
    pub guest_clock: GuestClock,
    /// Counters that others published, from the last sample.
    pub published: BTreeMap<String, u64>,
    /// Processes of the virtual machines that ran or were targets.
    pub vms: Vec<u32>,
    /// What the eBPF programs did; with times only when those were measured.
    pub programs: Vec<Program>,
    /// The system calls that most of `calls.other` were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_calls: Option<Vec<OtherCall>>,
    /// How many calls were counted by their stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_sites: Option<stacks::calls::Counted>,
    /// What the stacks of the rows stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<stacks::samples::Counted>,
    /// Peak memory of the recorder.
    pub max_rss_bytes: u64,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// The kernel's statistics of the programs; empty where it has none.
pub fn programs(programs: &Programs, measured: bool) -> Vec<Program> {
    let known: std::collections::HashMap<u32, _> = ProgInfoIter::default()
        .map(|info| (info.id, info))
        .collect();
    let mut found: Vec<Program> = programs
        .numbers()
        .into_iter()
        .filter_map(|(name, number)| {
            let info = known.get(&number)?;
            Some(Program {
                name,
                runs: measured.then_some(info.run_cnt),
                run_ns: measured.then_some(info.run_time_ns),
                missed: info.recursion_misses,
            })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The most frequent calls without a class, where these are a column.
pub fn other_calls(programs: &Programs, columns: &Columns) -> Option<Vec<OtherCall>> {
    columns.find(calls::OTHER_EVENT)?;
    let counts = programs.other_calls().ok()?;
    Some(calls::others::most_frequent(&counts))
}

/// Finish the rows and describe them. Fails when the stream cannot be read or a file cannot be
/// written; the stream is then kept.
pub fn finish(facts: &Facts<'_>, consumer: Consumer, folder: &Folder) -> Result<Summary, Error> {
    let lines = facts
        .stacks
        .as_ref()
        .map_or(&[][..], |stacks| &stacks.lines);
    let written = parquet::finish(&folder.stream(), &folder.rows(), lines)
        .map_err(|error| files::failed(&folder.rows(), error))?;
    let events = Events {
        columns: columns(facts, &consumer),
        unavailable: &facts.columns.unavailable,
    };
    folder.describe("events.json", &events)?;
    let summary = summary(facts, &consumer, written, &events);
    folder.describe("record.json", &summary)?;
    // Only at this point: until here the stream is the only copy.
    std::fs::remove_file(folder.stream())
        .map_err(|error| files::failed(&folder.stream(), error))?;
    Ok(summary)
}

fn columns<'a>(facts: &Facts<'a>, consumer: &'a Consumer) -> Vec<Column<'a>> {
    let (_, all_ns) = consumer.turns();
    let described = facts.columns.events.iter().zip(&facts.columns.locations);
    let own = described
        .zip(consumer.totals())
        .map(|((event, location), (total, rest))| Column {
            name: &event.name,
            about: &event.about,
            source: event.layer(),
            unit: event.unit,
            kind: Kind::Delta,
            sum: total.sum,
            after_last_row: matches!(location, Location::Counted(_)).then_some(rest),
            rows: total.rows,
            coverage: ratio(total.covered_ns, all_ns),
            running: ratio(total.running_ns, total.enabled_ns),
        });
    own.chain(consumer.samples().iter().flat_map(page_columns))
        .collect()
}

fn page_columns(page: &PageSamples) -> impl Iterator<Item = Column<'_>> {
    let counted = page.totals().iter().zip(page.rest());
    page.names()
        .iter()
        .zip(counted)
        .map(|(name, (total, rest))| Column {
            name,
            about: "published by a guest or an application; null in rows without a new sample",
            source: name.split('.').next().unwrap_or_default(),
            // The publisher gives the unit by the end of the name.
            unit: if name.ends_with("_ns") {
                Unit::Ns
            } else {
                Unit::Count
            },
            kind: Kind::Delta,
            sum: total.sum,
            after_last_row: Some(rest),
            rows: total.rows,
            coverage: None,
            running: None,
        })
}

#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn summary(
    facts: &Facts<'_>,
    consumer: &Consumer,
    written: parquet::Written,
    events: &Events<'_>,
) -> Summary {
    let (rows, lost, lost_ring_full) = consumer.rows();
    let (end_clock, tsc_within) = consumer.clock();
    let (throttled, throttled_ns) = facts.throttling.total();
    Summary {
        format: 1,
        reference: facts.reference.clone(),
        reference_running: facts.running.share(),
        throttled,
        throttled_ns,
        max_sample_rate: facts.max_sample_rate,
        interval: facts.interval.period(),
        targets_only: facts.filter,
        cpus: facts.cpus.online.clone(),
        cpus_away: facts.gaps.clone(),
        clock: "CLOCK_MONOTONIC",
        clocks: [facts.begin, end_clock],
        tsc_hz: facts.begin.hertz(&end_clock),
        tsc_within,
        end: facts.end.clone(),
        rows,
        lost,
        lost_ring_full,
        counters: facts.counters,
        rotation: rotation(facts, consumer),
        ring_rows: facts.shape.rows,
        row_bytes: facts.shape.row_bytes(),
        file_bytes_per_row: (rows > 0).then(|| written.bytes as f64 / written.rows as f64),
        guest_clock: guest_clock(facts, consumer),
        published: consumer
            .samples()
            .iter()
            .flat_map(PageSamples::last)
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        vms: consumer.machines().iter().copied().collect(),
        programs: facts.programs.clone(),
        other_calls: facts.other_calls.clone(),
        call_sites: facts.call_sites.clone(),
        stacks: facts.stacks.clone(),
        max_rss_bytes: max_rss_bytes(),
        warnings: warnings::all(facts, consumer, events),
    }
}

fn guest_clock(facts: &Facts<'_>, consumer: &Consumer) -> GuestClock {
    let bounds = consumer.samples().iter().find_map(PageSamples::bounds);
    let page = bounds.and_then(|bounds| {
        Some(PageClock {
            last: bounds.skew()?,
            widest_ns: bounds.widest_ns()?,
        })
    });
    let vcpus: Vec<VcpuClock> = consumer.vcpu_clocks().copied().collect();
    let (end, within) = consumer.clock();
    let by_offset = facts
        .begin
        .hertz(&end)
        .filter(|hertz| *hertz > 0 && !vcpus.is_empty())
        .map(|hertz| within.saturating_mul(1_000_000_000).div_ceil(hertz));
    let by_page = page.as_ref().map(|page| page.widest_ns);
    let by_exchange = facts.exchange.map(|skew| skew.within_ns);
    GuestClock {
        skew_ns: [by_offset, by_page, by_exchange]
            .into_iter()
            .flatten()
            .min(),
        page,
        exchange: facts.exchange,
        vcpus,
    }
}

fn rotation(facts: &Facts<'_>, consumer: &Consumer) -> Option<Rotation> {
    let names = |group: &Vec<usize>| {
        let names = group.iter().map(|perf| facts.columns.perf_name(*perf));
        names.flatten().map(str::to_owned).collect()
    };
    facts.groups.rotate().then(|| Rotation {
        groups: facts.groups.turns.iter().map(names).collect(),
        turns: consumer.turns().0,
    })
}

/// The peak memory of this program; `getrusage` would include its parent's, from before the exec.
fn max_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
