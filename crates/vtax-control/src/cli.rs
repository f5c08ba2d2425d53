//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use vtax_cli::{Error, output, units};
use vtax_control::control::Control;
use vtax_control::daemon::{Schedule, run};
use vtax_control::guard::Limits;
use vtax_control::host::{Machine, nearest_machine};
use vtax_control::line::Line;
use vtax_control::metrics::Metrics;
use vtax_control::policy_file::Recipe;
use vtax_control::sensors::Sensors;
use vtax_control::state::{self, Folder};
use vtax_sys::signals::Signals;
use vtax_sys::tree::Tree;

use crate::{unit, view};

/// Decides on the paging mode of this KVM host from live counters
#[derive(Debug, Parser)]
#[command(name = "vtax-control", version)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(RunArguments),
    Watch(WatchArguments),
}

/// Read counters each window, feed a policy, and say what it decides; with --apply, do it
#[derive(Debug, Args)]
#[command(after_help = "\
Without --apply it only says what it would do. Signals: TERM and INT end it, HUP has it read the
policy file again. Prints a line for each window. Tried only in an emulated AMD host, with vtax's
own guests. docs/host.md has the rest.

Examples:
  vtax-control run --for 10s
  vtax-control run --policy naive --json
  vtax-control run --apply --max-pause 200ms --min-dwell 60s --metrics 127.0.0.1:9102")]
struct RunArguments {
    #[command(flatten)]
    what: What,
    /// Switch the host
    #[arg(long)]
    apply: bool,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
    /// Answer Prometheus at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Print each line as JSON
    #[arg(long)]
    json: bool,
    /// Print a systemd unit that runs this program with these options, and end
    #[arg(long)]
    print_unit: bool,
}

/// Show the controller live: the one that runs, or else one that only looks
#[derive(Debug, Args)]
#[command(after_help = "\
Follows the controller that works with --state-dir. Where none does, it looks itself, with these
options, and changes nothing.

Examples:
  vtax-control watch
  vtax-control watch --policy dav2m --window 2s")]
struct WatchArguments {
    #[command(flatten)]
    what: What,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
}

/// What is read, and what decides.
#[derive(Debug, Args)]
struct What {
    /// The policy [default: vtax, or what the file says]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// A TOML file with the policy and its parameters; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    policy_file: Option<PathBuf>,
    /// The length of a window, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::window)]
    window: Duration,
    /// No switch when guests would pause longer
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::duration)]
    max_pause: Duration,
    /// The least time that a mode lasts
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    min_dwell: Duration,
    /// A page of counters that a model publishes, instead of perf; may be repeated
    #[arg(long, value_name = "FILE")]
    counters: Vec<PathBuf>,
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

impl Arguments {
    /// Carry out the subcommand.
    pub fn carry_out(self) -> Result<(), Error> {
        match self.verb {
            Verb::Run(arguments) => arguments.carry_out(),
            Verb::Watch(arguments) => arguments.carry_out(),
        }
    }
}

impl RunArguments {
    fn carry_out(self) -> Result<(), Error> {
        if self.print_unit {
            // Invalid options make no unit.
            self.what.recipe(&self.what.tree())?;
            return output::line(unit::text()?.trim_end());
        }
        if self.apply && self.what.root.is_some() {
            let reason = "only this machine can be switched";
            return Err(Error::misuse("--root", reason, "leave --apply out"));
        }
        let tree = self.what.tree();
        let signals = signals()?;
        let control = self.what.control(&tree, self.apply)?;
        let folder = Folder::hold(&self.what.state_dir, &tree)?;
        let mut metrics = Metrics::default();
        if let Some(address) = self.metrics {
            let bound = metrics.serve(address)?;
            eprintln!("vtax-control: metrics at http://{bound}/metrics");
        }
        let schedule = self.what.schedule(&tree, self.time);
        let say = |line: &Line| {
            if self.json {
                output::json(line)
            } else {
                output::line(&output::plain(&line.to_string()))
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
    fn carry_out(self) -> Result<(), Error> {
        let signals = signals()?;
        let mut screen = view::Screen::new();
        if state::published(&self.what.state_dir)?.is_some() {
            let follow = view::Follow {
                folder: &self.what.state_dir,
                time: self.time,
            };
            return follow.until_the_end(&signals, &mut screen);
        }
        eprintln!(
            "vtax-control: no controller works with {}; this one only looks",
            self.what.state_dir.display()
        );
        let tree = self.what.tree();
        let control = self.what.control(&tree, false)?;
        let schedule = self.what.schedule(&tree, self.time);
        let mut metrics = Metrics::default();
        run(control, None, &schedule, &signals, &mut metrics, |line| {
            screen.show(line)
        })
    }
}

impl What {
    fn tree(&self) -> Tree {
        self.root.as_ref().map_or_else(Tree::host, Tree::at)
    }

    fn recipe(&self, tree: &Tree) -> Result<Recipe, Error> {
        let file = self.policy_file.as_deref();
        Recipe::read(file, self.policy.as_deref(), nearest_machine(tree))
    }

    fn control(&self, tree: &Tree, apply: bool) -> Result<Control<Machine>, Error> {
        let recipe = self.recipe(tree)?;
        // Threads of another tree are not threads of this machine.
        let events = self.root.is_none().then_some(recipe.events);
        let sensors = Sensors::of(tree, &self.counters, events);
        let host = Machine::new(tree.clone(), self.module_path.clone());
        let limits = Limits {
            max_pause_ms: self.max_pause.as_secs_f64() * 1e3,
            min_dwell_s: self.min_dwell.as_secs_f64(),
        };
        Ok(Control::new(host, sensors, recipe, limits, apply))
    }

    fn schedule(&self, tree: &Tree, time: Option<Duration>) -> Schedule {
        Schedule {
            every: self.window,
            time,
            file: self.policy_file.clone(),
            policy: self.policy.clone(),
            machine: nearest_machine(tree),
        }
    }
}

fn signals() -> Result<Signals, Error> {
    Signals::take(&[]).map_err(|errno| Error::system("signals", errno, "try again"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
