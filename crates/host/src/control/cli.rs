//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::control::daemon::{Schedule, run};
use crate::control::decision::Control;
use crate::control::guard::Limits;
use crate::control::host::{Machine, nearest_machine};
use crate::control::huge_pages::{self, HugePages};
use crate::control::line::Line;
use crate::control::metrics::Metrics;
use crate::control::policy_file::Recipe;
use crate::control::sensors::Sensors;
use crate::control::state::{self, Folder};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use vtax_sys::signals::Signals;
use vtax_sys::terminal::{Error, output, units};
use vtax_sys::tree::Tree;

use crate::control::{follow, unit};

/// Read counters of guests again and again, let a policy decide on the paging mode, and switch
///
/// The policies are those of `vtax paging simulate`. The mode is the host's, so all guests are
/// weighed together. A switch pauses every guest: what earlier ones or a rehearsal took, a budget and
/// a shortest dwell decide with the policy. A host does not stay in a mode that was only tried.
/// Without --apply and --apply-huge it only says what it would do, and touches nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vtax paging control --for 10s
  vtax paging control --policy policy.toml --json
  vtax paging control --apply-huge
  vtax paging control --apply --max-pause 200ms --min-dwell 60s --metrics 127.0.0.1:9102
  vtax paging control --apply --print-unit >/etc/systemd/system/vtax-control.service

Needs root: counters of guests, and for --apply what `vtax paging switch` needs. Signals: TERM and
INT end it, HUP has it read the policy file again. Tried only in an emulated AMD host with vtax's
own guests, on counters that a model made: no processor's counters of guests were ever read.")]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub struct ControlArguments {
    #[command(flatten)]
    what: What,
    /// Switch the host; without it, only say what would be done
    #[arg(long)]
    apply: bool,
    /// Give guests huge pages where walks of nested paging cost enough, which pauses no guest
    #[arg(long)]
    apply_huge: bool,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
    /// Answer Prometheus at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Print a line of JSON for each window
    #[arg(long)]
    json: bool,
    /// Print a unit for systemd with these options
    #[arg(long)]
    print_unit: bool,
}

/// Show the controller live: the one that runs, or else one that only looks
#[derive(Debug, Args)]
#[command(after_help = "\
Follows the controller that works with --state-dir. Where none does, it looks itself, with these
options, and changes nothing.

Examples:
  vtax paging watch
  vtax paging watch --policy dav2m --every 2s")]
pub struct WatchArguments {
    #[command(flatten)]
    what: What,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
}

/// What is read, and what decides.
#[derive(Debug, Args)]
struct What {
    /// The policy, or a TOML file with a policy and its parameters (docs/host.md), which SIGHUP
    /// reads again [default: vtax]
    #[arg(long, alias = "policy-file", value_name = "NAME|FILE", add = ArgValueCandidates::new(policies))]
    policy: Option<String>,
    /// How often to read the counters, 100ms to 1h
    #[arg(long, alias = "window", value_name = "TIME", default_value = "1s",
          value_parser = units::window)]
    every: Duration,
    /// No switch when guests would pause longer; a trial may always be ended
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::duration)]
    max_pause: Duration,
    /// The least time that a mode lasts
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    min_dwell: Duration,
    /// Page in which a model publishes a guest's counters, instead of perf; repeat it
    #[arg(long, alias = "counters", value_name = "PATH")]
    guest: Vec<PathBuf>,
    /// The file of the vendor module of KVM [default: the system's]
    #[arg(long, value_name = "FILE")]
    module_path: Option<PathBuf>,
    /// Where its state is kept
    #[arg(long, value_name = "DIR", default_value = state::FOLDER)]
    state_dir: PathBuf,
    /// Read this tree instead of /, for tests
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

impl ControlArguments {
    /// Carry it out, until a signal or the time.
    pub fn carry_out(self) -> Result<(), Error> {
        if self.print_unit {
            // Invalid options make no unit.
            self.what.recipe(&self.what.tree())?;
            return output::line(unit::text()?.trim_end());
        }
        if (self.apply || self.apply_huge) && self.what.root.is_some() {
            let reason = "only this machine can be changed";
            let remedy = "leave --apply and --apply-huge out";
            return Err(Error::misuse("--root", reason, remedy));
        }
        let tree = self.what.tree();
        let signals = signals()?;
        let huge_pages = self.apply_huge.then(|| {
            let memory = huge_pages::Machine::new(tree.clone());
            HugePages::new(Box::new(memory), self.what.min_dwell.as_secs_f64())
        });
        let control = self.what.control(&tree, self.apply)?.with(huge_pages);
        let folder = Folder::hold(&self.what.state_dir, &tree)?;
        let mut metrics = Metrics::default();
        if let Some(address) = self.metrics {
            let bound = metrics.serve(address)?;
            eprintln!("vtax: metrics at http://{bound}/metrics");
        }
        let schedule = self.what.schedule(&tree, self.time);
        let say = |line: &Line| {
            if self.json {
                output::json(line)
            } else {
                follow::show(line)
            }
        };
        run(
            control,
            Some(&folder),
            &schedule,
            &signals,
            &mut metrics,
            say,
        )
    }
}

impl WatchArguments {
    /// Carry it out, until a signal or the time.
    pub fn carry_out(self) -> Result<(), Error> {
        let signals = signals()?;
        if state::published(&self.what.state_dir)?.is_some() {
            return follow::until_the_end(&self.what.state_dir, self.time, &signals);
        }
        eprintln!(
            "vtax: no controller works with {}; this one only looks",
            self.what.state_dir.display()
        );
        let tree = self.what.tree();
        let control = self.what.control(&tree, false)?;
        let schedule = self.what.schedule(&tree, self.time);
        let mut metrics = Metrics::default();
        run(
            control,
            None,
            &schedule,
            &signals,
            &mut metrics,
            follow::show,
        )
    }
}

impl What {
    fn tree(&self) -> Tree {
        self.root.as_ref().map_or_else(Tree::host, Tree::at)
    }

    fn recipe(&self, tree: &Tree) -> Result<Recipe, Error> {
        Recipe::read(self.policy.as_deref(), nearest_machine(tree))
    }

    fn control(&self, tree: &Tree, apply: bool) -> Result<Control<Machine>, Error> {
        let recipe = self.recipe(tree)?;
        // Threads of another tree are not threads of this machine.
        let events = self.root.is_none().then_some(recipe.events);
        let sensors = Sensors::of(tree, &self.guest, events);
        let host = Machine::new(tree.clone(), self.module_path.clone());
        let limits = Limits {
            max_pause_ms: self.max_pause.as_secs_f64() * 1e3,
            min_dwell_s: self.min_dwell.as_secs_f64(),
        };
        Ok(Control::new(host, sensors, recipe, limits, apply))
    }

    fn schedule(&self, tree: &Tree, time: Option<Duration>) -> Schedule {
        Schedule {
            every: self.every,
            time,
            policy: self.policy.clone(),
            machine: nearest_machine(tree),
        }
    }
}

fn policies() -> Vec<CompletionCandidate> {
    let names = vtax_model::policy::registry::names();
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn signals() -> Result<Signals, Error> {
    Signals::take(&[]).map_err(|errno| Error::system("signals", errno, "try again"))
}
