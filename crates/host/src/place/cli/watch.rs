//! `vtax place watch`.

use std::time::Duration;

use crate::place::watch::controller::Settings;
use crate::place::watch::predictor::Predictor;
use crate::place::watch::{Request, watch};
use clap::Args;
use vtax_sys::signals::Signals;
use vtax_sys::terminal::{Error, output, units};
use vtax_sys::tree::Tree;

use crate::place::cli::State;
use crate::place::cli::cores::{Named, percent};
use crate::place::cli::source::PredictorSource;

/// Look again and again at which threads belong on slow cores, and move one at a time
///
/// It measures what each move does and takes back what hurts a guest. Without --apply it moves
/// nothing. Without a run that predicts anything it can only report.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vtax place watch --fast 0-3 --slow 4-7
  vtax place watch --fast 0-3 --slow 4-7 --apply --budget 2%
  vtax place watch --apply --for 1h --json

Ctrl-C puts everything back. If it is killed, `vtax place apply --undo` does. Tried with --apply on
processes that stand in for guests only, never on a host with slow cores: stay beside it.")]
pub struct WatchArguments {
    #[command(flatten)]
    source: PredictorSource,
    #[command(flatten)]
    named: Named,
    /// Only this process and its descendants; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,
    /// Move threads; without it, only say what would be done
    #[arg(long)]
    apply: bool,
    /// How often to look, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::window)]
    every: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
    /// What a guest may lose
    #[arg(long, value_name = "PERCENT", default_value = "5%",
          value_parser = |text: &str| percent(text, 0.1, 50.0))]
    budget: f64,
    /// What the link of a guest carries, in bit/s, such as 10G, for a predictor that needs it
    #[arg(long, value_name = "BITS", value_parser = units::count)]
    rate: Option<u64>,
    /// Print a line of JSON for each look
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: State,
}

impl WatchArguments {
    /// Watch until the end.
    pub fn carry_out(self) -> Result<(), Error> {
        let ending =
            Signals::take(&[]).map_err(|errno| Error::system("signals", errno, "try again"))?;
        let tree = Tree::host();
        let json = self.json;
        let request = self.request(&tree)?;
        for each in &request.cores.notes {
            note(each);
        }
        watch(&tree, request, &ending, |line| {
            if json {
                output::json(line)
            } else {
                output::line(&output::plain(&line.to_string()))
            }
        })
    }

    fn request(self, tree: &Tree) -> Result<Request, Error> {
        let found = self.source.find()?;
        let cores = self.named.choose(tree)?;
        let predictor = found.inspect_err(|why| note(why)).ok();
        let mut settings = Settings {
            budget_percent: self.budget,
            ..Settings::default()
        };
        match cores.speed_percent {
            Some(percent) => settings.slow_speed = percent / 100.0,
            None if predictor.is_some() => {
                let reason = "the kernel does not say how fast the slow CPUs are";
                let remedy = "name it in percent of the fast ones, such as --slow-speed 50%";
                return Err(Error::misuse("--slow-speed", reason, remedy));
            }
            // No loss is known for any thread, so nothing is decided by one.
            None => {}
        }
        if self.rate.is_none() && predictor.as_ref().is_some_and(Predictor::takes_links) {
            let reason = "the predictor goes by the use of links";
            let remedy = "name what a guest's link carries, such as --rate 1G";
            return Err(Error::misuse("--rate", reason, remedy));
        }
        Ok(Request {
            cores,
            roots: self.pid,
            apply: self.apply,
            every: self.every,
            time: self.time,
            predictor,
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            link_bits: self.rate.map(|bits| bits as f64),
            settings,
            state: self.state.folder,
        })
    }
}

fn note(text: &str) {
    eprintln!("vtax: {}", output::plain(text));
}
