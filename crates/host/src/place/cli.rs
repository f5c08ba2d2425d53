//! The command line.

mod cores;
mod source;
mod watch;

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use crate::place::backends::Backend;
use crate::place::end::End;
use crate::place::journal::STATE;
use crate::place::plan::Plan;
use crate::place::slow::{Request, guardian};
use crate::place::{apply, backends, host, window};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::json;
use vtax_sys::terminal::{Error, output, units};
use vtax_sys::tree::Tree;

use crate::place::cli::cores::CoresArguments;
use crate::place::cli::watch::WatchArguments;
use crate::place::tables;

#[derive(Debug, Subcommand)]
pub enum Verb {
    Threads(ThreadsArguments),
    Backends(BackendsArguments),
    Cores(CoresArguments),
    Slow(SlowArguments),
    Apply(ApplyArguments),
    Undo(UndoArguments),
    Watch(WatchArguments),
    Host(HostArguments),
    Sweep(SweepArguments),
    Guard(GuardArguments),
}

/// Print the threads that work for guests, and what each did for a while
#[derive(Debug, Args)]
pub struct ThreadsArguments {
    /// Only this process and its descendants; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,
    /// How long to watch the threads
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    duration: Duration,
    /// Watch until standard input ends, or a signal comes, instead of for a time. A line of JSON
    /// says when this begins
    #[arg(long, conflicts_with = "duration")]
    until_eof: bool,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Print the ways to make threads slower, and which are possible here
#[derive(Debug, Args)]
pub struct BackendsArguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Hold threads below full speed until standard input ends, or a signal comes
#[derive(Debug, Args)]
#[command(after_help = "\
Prints one line of JSON when it is in force, with the speed that was measured, and one at the end.
Without --cpu a quota holds every thread by itself, and the other ways move all threads to the CPU
that the first one was on. It ends too when the thread that started it ends.

Example:
  vtax place slow --backend hog --percent 50 --cpu 1 --tid 4711")]
pub struct SlowArguments {
    /// The way: see `vtax-host place backends`
    #[arg(long, value_name = "NAME",
          value_parser = PossibleValuesParser::new(Backend::ALL.map(Backend::name)))]
    backend: String,
    /// Percent of full speed, 5 to 100; 100 is a control: the same setup without slowing
    #[arg(long, value_name = "P", value_parser = percent)]
    percent: f64,
    /// The slow CPU, on which all threads run
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// The threads
    #[arg(long, value_name = "TID", required = true, num_args = 1..,
          value_parser = clap::value_parser!(i32).range(1..))]
    tid: Vec<i32>,
    #[command(flatten)]
    state: State,
}

/// Put threads and interrupts on the CPUs of a plan: all of it, or nothing
///
/// A plan for another host, a thread that serves no guest, or a CPU that is not on is refused
/// before anything is moved. Threads that have ended in the meantime are skipped and named.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vtax place advise --fast 0-3 --slow 4-7 --plan plan.toml
  vtax place apply --plan plan.toml
  vtax place apply --undo

Needs root. It is a transaction: all moves are made and read back, or none stays. If vtax is
killed on the way, or afterwards, --undo brings every thread back.")]
pub struct ApplyArguments {
    /// A plan, as `vtax place advise` writes it (docs/place-format.md)
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Put all back where it was before the plan in force
    #[arg(long)]
    undo: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// What earlier versions called `apply --undo`
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct UndoArguments {
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// Restore threads that killed programs have slowed or a killed watch has moved
#[derive(Debug, Args)]
pub struct SweepArguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

/// Restore what is in a journal when standard input ends
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct GuardArguments {
    journal: PathBuf,
}

#[derive(Debug, Args)]
struct State {
    /// The folder of journals
    #[arg(long = "state", value_name = "FOLDER", hide = true, default_value = STATE)]
    folder: PathBuf,
}

/// Print what a plan calls this machine
#[derive(Debug, Args)]
pub struct HostArguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl Verb {
    /// Carry out the subcommand.
    ///
    /// Fails as the subcommand does.
    pub fn carry_out(self) -> Result<(), Error> {
        match self {
            Verb::Threads(arguments) => arguments.carry_out(),
            Verb::Backends(arguments) => arguments.carry_out(),
            Verb::Cores(arguments) => arguments.carry_out(),
            Verb::Slow(arguments) => arguments.carry_out(),
            Verb::Apply(arguments) => arguments.carry_out(),
            Verb::Undo(arguments) => undo(&arguments.state, arguments.json),
            Verb::Watch(arguments) => arguments.carry_out(),
            Verb::Host(arguments) => arguments.carry_out(),
            Verb::Sweep(arguments) => arguments.carry_out(),
            Verb::Guard(arguments) => guardian::guard(&Tree::host(), &arguments.journal),
        }
    }
}

impl ThreadsArguments {
    fn carry_out(self) -> Result<(), Error> {
        let tree = Tree::host();
        if let Some(pid) = self.pid.iter().find(|pid| !tree.has_process(**pid)) {
            let thing = format!("--pid {pid}");
            return Err(Error::misuse(
                thing,
                "no such process",
                "name one that runs",
            ));
        }
        let window = if self.until_eof {
            let end = End::new()?;
            let wait = || {
                output::json(&json!({"watching": true}))?;
                end.wait()
            };
            window::measure(&tree, &self.pid, wait)?
        } else {
            let wait = || {
                sleep(self.duration);
                Ok(())
            };
            window::measure(&tree, &self.pid, wait)?
        };
        if self.json {
            return output::json(&window);
        }
        tables::threads(&window)
    }
}

impl BackendsArguments {
    fn carry_out(self) -> Result<(), Error> {
        let all = backends::all(&Tree::host());
        if self.json {
            return output::json(&json!({ "backends": all }));
        }
        tables::backends(&all)
    }
}

impl HostArguments {
    fn carry_out(self) -> Result<(), Error> {
        let host = host::host(&Tree::host());
        if self.json {
            return output::json(&json!({ "host": host }));
        }
        output::line(&host)
    }
}

/// Below 5 % the kernel's own limit of real-time threads decides, not this program.
fn percent(text: &str) -> Result<f64, String> {
    let number: Result<f64, _> = text.parse();
    number
        .ok()
        .filter(|percent| (5.0..=100.0).contains(percent))
        .ok_or_else(|| "not a number from 5 to 100".to_owned())
}

impl SlowArguments {
    fn carry_out(self) -> Result<(), Error> {
        let end = End::new()?;
        let named = |known: &Backend| known.name() == self.backend;
        let backend = Backend::ALL.into_iter().find(named);
        let request = Request {
            // The command line accepts no other names.
            backend: backend.unwrap_or(Backend::Quota),
            percent: self.percent,
            cpu: self.cpu,
            threads: self.tid,
        };
        let wait = || end.wait();
        let ended = request.hold(&Tree::host(), &self.state.folder, output::json, wait)?;
        output::json(&ended)
    }
}

impl ApplyArguments {
    fn carry_out(self) -> Result<(), Error> {
        let file = match (self.plan, self.undo) {
            (Some(file), false) => file,
            (None, true) => return undo(&self.state, self.json),
            (plan, _) => {
                let reason = if plan.is_some() {
                    "both it and --undo are given"
                } else {
                    "it is missing"
                };
                return Err(Error::misuse("--plan", reason, PLAN_OR_UNDO));
            }
        };
        let name = file.display().to_string();
        let text = fs::read_to_string(&file)
            .map_err(|error| Error::misuse(&name, vtax_sys::reason(&error), "name a plan"))?;
        let plan = Plan::parse(&text)
            .map_err(|error| Error::misuse(&name, error, "see docs/place-format.md"))?;
        let applied = apply::apply(&Tree::host(), &plan, &self.state.folder)?;
        if self.json {
            return output::json(&applied);
        }
        tables::applied(&applied)
    }
}

const PLAN_OR_UNDO: &str = "give --plan FILE to move threads, or --undo alone to take a plan back";

fn undo(state: &State, json: bool) -> Result<(), Error> {
    let restored = apply::undo(&Tree::host(), &state.folder)?;
    if json {
        return output::json(&restored);
    }
    let (threads, interrupts) = (restored.threads, restored.settings);
    let ended = restored.ended.len();
    output::line(&format!(
        "{threads} threads and {interrupts} interrupts are where they were, {ended} ended"
    ))
}

impl SweepArguments {
    fn carry_out(self) -> Result<(), Error> {
        let restored = guardian::sweep(&Tree::host(), &self.state.folder);
        if self.json {
            return output::json(&json!({ "restored": restored }));
        }
        output::line(&format!("{restored} restored"))
    }
}
