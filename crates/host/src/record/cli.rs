//! The command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::record::availability::Machine;
use crate::record::interval::Interval;
use crate::record::options::{Applications, RecordOptions};
use crate::record::reference::running::WHOLE;
use crate::record::session;
use crate::record::skew::Skew;
use crate::record::sources::counters::named;
use crate::record::sources::{self, Need, SOURCES, Unit};
use crate::record::summary::Summary;
use crate::record::target::Target;
use crate::record::traced;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use vtax_sys::guest_page::applications::whole_names;
use vtax_sys::terminal::{Error, output, units};
use vtax_sys::tree::Tree;

/// Record events of hardware, VMM, kernel, guest and application, a row for each interval
///
/// Recording ends with COMMAND, the process, --for, or Ctrl-C; the files are complete then. The exit
/// code is the recorder's; vtax says how COMMAND ended. With --in, COMMAND gets your standard input
/// and your variables as in vtax compare.
#[derive(Debug, Args)]
#[command(after_help = below_the_options())]
pub struct RecordArguments {
    #[command(flatten)]
    within: Within,
    /// Length of an interval: instructions (2M to 400M), time (50us to 1s), or EVENT:N (each N
    /// events of all CPUs together) [default: 50M instructions, or 10ms where they are not counted]
    #[arg(long, value_name = "LENGTH", value_parser = str::parse::<Interval>)]
    every: Option<Interval>,
    /// Events, layers or default, with commas [default: default, and kvm with --vm]
    #[arg(long, value_name = "NAMES")]
    events: Option<String>,
    /// Only these processes (with commas), their threads and all their descendants
    #[arg(long, value_name = "PID", value_delimiter = ',', conflicts_with_all = ["vm", "command"])]
    pid: Vec<i32>,
    /// Only this virtual machine (its process), or all
    #[arg(long, value_name = "PID|all", value_parser = machine, conflicts_with = "command")]
    vm: Option<Machines>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Page in which a guest or a program publishes counters; repeat it for several guests. With
    /// --in, any name: the guests publish by themselves (docs/record.md)
    #[arg(long, value_name = "PATH")]
    guest: Vec<PathBuf>,
    /// Use at most N counters at a time, for software events too; more events take turns
    #[arg(long, value_name = "N")]
    counters: Option<NonZeroUsize>,
    #[command(flatten)]
    stacks: Stacks,
    /// Measure what recording costs (costs more)
    #[arg(long)]
    overhead: bool,
    /// Folder for the files; made if it does not exist [default: runs/<UTC>-<name>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print all events, and why some are absent
    #[arg(long, conflicts_with = "command")]
    list: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    inner: Inner,
    /// Only it and its children are counted
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  vtax record --every 50Mi --events default,kvm -- make test
  vtax record --every 1ms --vm all --for 30s
  vtax record --in lab:guests=2 --every 1ms -- gzip-like --seconds 5
  vtax record --list

Then: vtax timeline RUN --event kvm.exits     vtax correlate RUN     docs/record.md

Sources of events (--events; each event: vtax record --list):";

/// Examples, and the sources as they are declared.
fn below_the_options() -> String {
    let lines = SOURCES
        .iter()
        .map(|source| format!("\n  {:<7} {}", source.name, source.about));
    [EXAMPLES.to_owned()].into_iter().chain(lines).collect()
}

/// Recording in an environment, which `vtax` starts.
#[derive(Debug, Args)]
#[group(id = "inside", multiple = true)]
struct Within {
    /// Run COMMAND in this environment
    #[arg(long = "in", value_name = "SPEC", conflicts_with_all = ["pid", "vm"])]
    environment: Option<String>,
    /// Where the recorder of --in runs: outside the machine, or inside
    #[arg(long, value_name = "host|guest",
          value_parser = PossibleValuesParser::new(["host", "guest"]))]
    from: Option<String>,
    /// With --in: stop COMMAND when it writes more into its folder [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    max_output: Option<u64>,
    /// With --in: run COMMAND there [default: here]
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// With --in: let guests see this file or folder of a home or another hidden place; repeat it
    #[arg(long, value_name = "PATH")]
    share: Vec<PathBuf>,
    /// With --in: also give this variable of yours, which would be left out (a secret); repeat it
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
}

/// Where in a program events happen.
#[derive(Debug, Args)]
struct Stacks {
    /// Also count where in COMMAND the recorded classes of system calls are made (x86-64)
    #[arg(long, requires_all = ["command", "events"],
          conflicts_with_all = ["pid", "vm", "environment"])]
    call_sites: bool,
    /// Also write where the time goes: the stack that each row interrupts, weighted by the row's
    /// length (x86-64)
    #[arg(long)]
    stacks: bool,
}

/// What only programs ask for.
#[derive(Debug, Args)]
struct Inner {
    /// Limit on processes and threads for the command
    #[arg(long, value_name = "N", hide = true, requires = "command",
          value_parser = clap::value_parser!(u64).range(1..))]
    pids: Option<u64>,
    /// Write rows to the file after this time at the latest
    #[arg(long, value_name = "TIME", hide = true, default_value = "1s",
          value_parser = units::duration)]
    flush: Duration,
    /// Rows that the ring of one CPU holds
    #[arg(long, value_name = "ROWS", hide = true,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    ring: Option<u32>,
    /// The guest's clock minus this machine's, and the bound of its error, to keep with the rows
    #[arg(long, value_name = "NS,NS", hide = true, value_parser = skew,
          allow_hyphen_values = true)]
    guest_clock: Option<Skew>,
    /// Counters of this machine's applications by their names, or all that exist at the start
    #[arg(long, value_name = "NAMES|all", hide = true, value_parser = applications)]
    app: Option<Applications>,
    /// Take the vDSO away from the command's programs, so that each of their clock readings is a
    /// system call (as root; they cannot trace others then)
    #[arg(long, hide = true, requires = "command")]
    without_vdso: bool,
    /// Count the command's system calls by ptrace, without rows: slower, but needs no privilege
    #[arg(long, hide = true, requires = "command", conflicts_with_all = ["events", "stacks"])]
    by_ptrace: bool,
    /// Print nothing when done, and finish when the program that started this one is gone
    #[arg(long, hide = true, conflicts_with = "json")]
    child: bool,
}

/// Print every event, whether this machine has it, and why not
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Print where events come from, and what each source needs of the machine
#[derive(Debug, Args)]
pub struct SourcesArguments {
    /// Print it as JSON, with the names of their events
    #[arg(long)]
    json: bool,
}

/// Finish the files of a recorder that was killed
#[derive(Debug, Args)]
pub struct FinishArguments {
    /// Its folder
    out: PathBuf,
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

impl RecordArguments {
    /// Record to the end; fails as [`session::record`], and for what only `vtax` can do.
    pub fn carry_out(self) -> Result<(), Error> {
        if self.list {
            return list(self.json);
        }
        if self.within.environment.is_some() {
            return Err(Error::misuse(
                "--in",
                "only vtax starts environments",
                "use vtax record",
            ));
        }
        let Some(out) = self.out.clone() else {
            return Err(Error::misuse(
                "--out",
                "missing",
                "name a folder, or use vtax record",
            ));
        };
        let (json, child) = (self.json, self.inner.child);
        if child {
            session::finish_with_parent()?;
        }
        if self.inner.by_ptrace {
            let traced = traced::count(&self.options(out))?;
            return if json { output::json(&traced) } else { Ok(()) };
        }
        let summary = session::record(&self.options(out.clone()))?;
        if json {
            return output::json(&summary);
        }
        if child {
            return Ok(());
        }
        for warning in &summary.warnings {
            eprintln!("vtax: {warning}");
        }
        output::line(&in_words(&summary, &out.display().to_string()))
    }

    fn options(self, out: PathBuf) -> RecordOptions {
        let events = if self.vm.is_some() {
            "default,kvm"
        } else {
            "default"
        };
        let target = match self.vm {
            Some(Machines(process)) => Target::Machines(process),
            None if !self.pid.is_empty() => Target::Processes(self.pid),
            None if self.command.is_empty() => Target::System,
            None => Target::Command(self.command),
        };
        RecordOptions {
            every: self.every,
            events: self.events.unwrap_or_else(|| events.to_owned()),
            target,
            processes: self.inner.pids,
            duration: self.duration,
            flush: self.inner.flush,
            out,
            ring_rows: self.inner.ring,
            pages: self.guest,
            guest_clock: self.inner.guest_clock,
            applications: self.inner.app,
            counters: self.counters,
            call_sites: self.stacks.call_sites,
            stacks: self.stacks.stacks,
            without_vdso: self.inner.without_vdso,
            statistics: self.overhead,
        }
    }
}

impl EventsArguments {
    /// Print every event, and why this machine lacks it.
    pub fn carry_out(self) -> Result<(), Error> {
        list(self.json)
    }
}

impl SourcesArguments {
    /// Print the sources.
    pub fn carry_out(self) -> Result<(), Error> {
        list_sources(self.json)
    }
}

impl FinishArguments {
    /// Finish the files; fails when there are none, or they cannot be written.
    pub fn carry_out(self) -> Result<(), Error> {
        let written = session::finish(&self.out)?;
        output::line(&format!("{} rows", written.rows))
    }
}

fn in_words(summary: &Summary, out: &str) -> String {
    let reference = match serde_json::to_value(&summary.reference) {
        Ok(serde_json::Value::String(name)) if name.contains('.') => name,
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
    let tree = Tree::host();
    let machine = Machine::look(&tree, 0);
    let listed: Vec<Listed> = sources::all()
        .into_iter()
        .chain(named::of_pmus(&tree))
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

pub(super) fn skew(text: &str) -> Result<Skew, String> {
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
