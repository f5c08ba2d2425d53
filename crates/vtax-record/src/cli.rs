//! The command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use vtax_cli::{Error, output, units};
use vtax_record::availability::Machine;
use vtax_record::interval::Interval;
use vtax_record::options::{Applications, Options};
use vtax_record::reference::running::WHOLE;
use vtax_record::session;
use vtax_record::skew::Skew;
use vtax_record::sources::{self, Need, SOURCES, Unit};
use vtax_record::summary::Summary;
use vtax_record::target::Target;
use vtax_record::xen;
use vtax_sys::guest_page::applications::whole_names;
use vtax_sys::tree::Tree;

/// Records one row per interval: hardware, VMM, kernel and guest events on one axis.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Subcommands,
}

const EXAMPLES: &str = "\
Examples:
  vtax-recorder record --every 1ms --events default,kvm --for 10s --out run
  vtax-recorder record --every 50Mi --out run -- make test
  vtax-recorder list

Exit code: 0 done, 1 the machine failed, 2 misuse.";

#[derive(Debug, Subcommand)]
enum Subcommands {
    Record(RecordArguments),
    List(ListArguments),
    Sources(SourcesArguments),
    Finish(FinishArguments),
    ImportXen(ImportXenArguments),
}

/// Record until the command or process ends, the time is up, or Ctrl-C
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vtax-recorder record --every 1ms --vm all --for 30s --out run\n  \
    vtax-recorder record --events sched,faults --out run -- make test"
)]
struct RecordArguments {
    /// Length of an interval: instructions (2M to 400M) or time (50us to 1s)
    #[arg(long, value_name = "INTERVAL", value_parser = str::parse::<Interval>)]
    every: Option<Interval>,
    /// Events, layers or `default`, separated by commas
    #[arg(long, value_name = "NAMES", default_value = "default")]
    events: String,
    /// Only this process, its threads and all its descendants
    #[arg(long, value_name = "PID", conflicts_with_all = ["vm", "command"])]
    pid: Option<i32>,
    /// Only this virtual machine (its process), or all
    #[arg(long, value_name = "PID|all", value_parser = machine, conflicts_with = "command")]
    vm: Option<Machines>,
    /// Limit on processes and threads for the command
    #[arg(long, value_name = "N", requires = "command",
          value_parser = clap::value_parser!(u64).range(1..))]
    pids: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Write rows to the file after this time at the latest
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    flush: Duration,
    /// Rows that the ring of one CPU holds
    #[arg(long, value_name = "ROWS", hide = true,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    ring: Option<u32>,
    /// A page in which a guest or a program publishes counters (docs/record.md)
    #[arg(long, value_name = "PATH")]
    guest: Option<PathBuf>,
    /// The guest's clock minus this machine's, and the bound of its error, to keep with the rows
    #[arg(long, value_name = "NS,NS", value_parser = skew, allow_hyphen_values = true)]
    guest_clock: Option<Skew>,
    /// Counters of this machine's applications by their names, or all that exist at the start
    #[arg(long, value_name = "NAMES|all", value_parser = applications)]
    app: Option<Applications>,
    /// Use at most N counters at a time, for software events too; more events take turns
    #[arg(long, value_name = "N")]
    counters: Option<NonZeroUsize>,
    /// Measure how long the eBPF programs run (the measurement itself takes time)
    #[arg(long)]
    overhead: bool,
    /// Folder for the files; made if it does not exist
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
    /// For a program that starts this one: print nothing when done, and finish when that program is
    /// gone
    #[arg(long, hide = true, conflicts_with = "json")]
    child: bool,
    /// The command; only it and its children are counted
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Print every event, whether this machine has it, and why not
#[derive(Debug, Args)]
struct ListArguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Print where events come from, and what each source needs of the machine
#[derive(Debug, Args)]
struct SourcesArguments {
    /// Print it as JSON, with the names of their events
    #[arg(long)]
    json: bool,
}

/// Finish the files of a recorder that was killed
#[derive(Debug, Args)]
struct FinishArguments {
    /// Its folder
    out: PathBuf,
}

/// Make a recording of what `xentrace` has written on a Xen host
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  xentrace -D -e all -T 10 trace\n  \
    vtax-recorder import-xen trace --tsc-hz 2400000000 --every 1ms --out run")]
struct ImportXenArguments {
    /// The output of xentrace: a file, because it is read twice
    trace: PathBuf,
    /// Ticks per second of the host's time stamp counter (Xen prints the number when it starts)
    #[arg(long, value_name = "HZ", value_parser = tsc_hz)]
    tsc_hz: u64,
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = units::duration)]
    every: Duration,
    /// The output of xenperf before the trace; the growth of its counters goes to record.json
    #[arg(long, value_name = "FILE", requires = "xenperf_after")]
    xenperf_before: Option<PathBuf>,
    /// The output of xenperf after the trace
    #[arg(long, value_name = "FILE", requires = "xenperf_before")]
    xenperf_after: Option<PathBuf>,
    /// Folder for the files; made if need be
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Print what was imported as JSON
    #[arg(long)]
    json: bool,
}

/// Slower and faster than every processor that Xen runs on.
const TSC_HZ: std::ops::RangeInclusive<u64> = 100_000_000..=20_000_000_000;

/// A wrong power of ten would make all times wrong by that factor, so it is refused.
fn tsc_hz(text: &str) -> Result<u64, String> {
    let hz: u64 = text.parse().map_err(|_| "not a whole number of hertz")?;
    if TSC_HZ.contains(&hz) {
        return Ok(hz);
    }
    let than = if hz < *TSC_HZ.start() {
        "below"
    } else {
        "above"
    };
    let meant = [1_000, 1_000_000, 1_000_000_000]
        .iter()
        .filter_map(|factor| hz.checked_mul(*factor))
        .find(|hz| TSC_HZ.contains(hz));
    Err(match meant {
        Some(meant) => format!("{than} any processor's clock: hertz are meant, perhaps {meant}"),
        None => format!("{than} any processor's clock"),
    })
}

#[derive(Debug, Clone, Copy)]
struct Machines(Option<i32>);

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    about: String,
    unit: Unit,
    default: bool,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Declared {
    name: &'static str,
    about: &'static str,
    needs: &'static [Need],
    events: Vec<String>,
}

impl Arguments {
    /// Carry out the subcommand.
    ///
    /// Fails when the subcommand fails, or when the standard output cannot be written.
    pub fn carry_out(self) -> Result<(), Error> {
        match self.command {
            Subcommands::Record(arguments) => record(arguments),
            Subcommands::List(arguments) => list(arguments.json),
            Subcommands::Sources(arguments) => list_sources(arguments.json),
            Subcommands::Finish(arguments) => {
                let written = session::finish(&arguments.out)?;
                output::line(&format!("{} rows", written.rows))
            }
            Subcommands::ImportXen(arguments) => import_xen(arguments),
        }
    }
}

fn record(arguments: RecordArguments) -> Result<(), Error> {
    let (json, child) = (arguments.json, arguments.child);
    if child {
        session::finish_with_parent()?;
    }
    let out = arguments.out.display().to_string();
    let summary = session::record(&options(arguments))?;
    if json {
        return output::json(&summary);
    }
    if child {
        return Ok(());
    }
    for warning in &summary.warnings {
        eprintln!("vtax-recorder: {warning}");
    }
    output::line(&in_words(&summary, &out))
}

fn import_xen(arguments: ImportXenArguments) -> Result<(), Error> {
    let (out, json) = (arguments.out, arguments.json);
    let source = xen::Source {
        trace: arguments.trace,
        tsc_hz: arguments.tsc_hz,
        every: arguments.every,
        xenperf: arguments.xenperf_before.zip(arguments.xenperf_after),
    };
    let imported = xen::import(&source, &out)?;
    if json {
        return output::json(&imported);
    }
    for warning in &imported.warnings {
        eprintln!("vtax-recorder: {warning}");
    }
    output::line(&format!(
        "{} rows of {} records; in {}",
        imported.rows,
        imported.records,
        out.display()
    ))
}

fn options(arguments: RecordArguments) -> Options {
    let target = match (arguments.pid, arguments.vm) {
        (Some(process), _) => Target::Process(process),
        (None, Some(Machines(process))) => Target::Machines(process),
        (None, None) if arguments.command.is_empty() => Target::System,
        (None, None) => Target::Command(arguments.command),
    };
    Options {
        every: arguments.every,
        events: arguments.events,
        target,
        processes: arguments.pids,
        duration: arguments.duration,
        flush: arguments.flush,
        out: arguments.out,
        ring_rows: arguments.ring,
        guest: arguments.guest,
        guest_clock: arguments.guest_clock,
        applications: arguments.app,
        counters: arguments.counters,
        statistics: arguments.overhead,
    }
}

fn in_words(summary: &Summary, out: &str) -> String {
    let reference = match serde_json::to_value(summary.reference) {
        Ok(serde_json::Value::String(name)) => name.replace('_', " "),
        _ => String::new(),
    };
    let running = summary.reference_running.filter(|share| *share < WHOLE);
    let running = running.map_or_else(String::new, |share| {
        format!(" in {:.1} % of the time", 100.0 * share)
    });
    format!(
        "{} rows, {} lost; reference: {reference}{running}; in {out}",
        summary.rows, summary.lost
    )
}

fn list(json: bool) -> Result<(), Error> {
    let machine = Machine::look(&Tree::host(), 0);
    let listed: Vec<Listed> = sources::all()
        .into_iter()
        .map(|event| {
            let reason = machine.lacks(&event);
            Listed {
                name: event.name,
                about: event.about,
                unit: event.unit,
                default: event.default,
                available: reason.is_none(),
                reason,
            }
        })
        .collect();
    if json {
        return output::json(&listed);
    }
    let lines: Vec<String> = listed
        .iter()
        .map(|event| {
            let mark = if event.default { '*' } else { ' ' };
            let lack = event.reason.as_ref();
            let lack = lack.map_or_else(String::new, |reason| format!(" [absent: {reason}]"));
            format!("{mark} {:<28} {}{lack}", event.name, event.about)
        })
        .collect();
    output::line(&lines.join("\n"))
}

fn list_sources(json: bool) -> Result<(), Error> {
    if json {
        let declared = SOURCES.iter().map(|source| Declared {
            name: source.name,
            about: source.about,
            needs: source.needs,
            events: (source.events)()
                .into_iter()
                .map(|event| event.name)
                .collect(),
        });
        return output::json(&declared.collect::<Vec<_>>());
    }
    let lines = SOURCES
        .iter()
        .map(|source| format!("{:<7} {}", source.name, source.about));
    output::line(&lines.collect::<Vec<_>>().join("\n"))
}

fn machine(text: &str) -> Result<Machines, String> {
    if text == "all" {
        return Ok(Machines(None));
    }
    text.parse()
        .map(|process| Machines(Some(process)))
        .map_err(|_| "neither a process number nor all".into())
}

fn skew(text: &str) -> Result<Skew, String> {
    let (offset, within) = text.split_once(',').ok_or("not two numbers")?;
    let wrong = |_| "not two numbers of nanoseconds".to_owned();
    Ok(Skew {
        offset_ns: offset.parse().map_err(wrong)?,
        within_ns: within.parse().map_err(wrong)?,
    })
}

fn applications(text: &str) -> Result<Applications, String> {
    Ok(whole_names(text)?.map_or(Applications::All, Applications::Named))
}
