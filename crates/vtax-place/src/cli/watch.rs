//! `vtax-place watch`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use vtax_cli::{Error, output, units};
use vtax_place::watch::controller::Settings;
use vtax_place::watch::predictor::Predictor;
use vtax_place::watch::{Request, watch};
use vtax_sys::signals::Signals;
use vtax_sys::tree::Tree;

use crate::cli::State;
use crate::cli::cores::{Named, percent};

/// Move service threads to slow CPUs, one at a time, as long as guests do not lose by it
#[derive(Debug, Args)]
#[command(after_help = "\
Without --apply it only says what it would do. What it moved goes back when it ends; after kill -9
`vtax-place undo` does that. Without --predictor nothing is known to be harmless, and it only
reports. Prints a line for each window.

Examples:
  vtax-place watch --fast 0-3 --slow 4-7 --slow-speed 55% --predictor run.json
  vtax-place watch --apply --budget 2% --predictor run.json")]
pub struct WatchArguments {
    #[command(flatten)]
    named: Named,
    /// Only this process and its descendants; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,
    /// Move threads
    #[arg(long)]
    apply: bool,
    /// The length of a window, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::window)]
    every: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
    /// What a guest may lose
    #[arg(long, value_name = "PERCENT", default_value = "5%",
          value_parser = |text: &str| percent(text, 0.1, 50.0))]
    budget: f64,
    /// The predictor of losses: run.json of `vtax place measure`, or the predictor in it
    #[arg(long, value_name = "FILE")]
    predictor: Option<PathBuf>,
    /// Bandwidth of a guest's link in bits per second, for a predictor that needs it
    #[arg(long, value_name = "BITS", value_parser = units::count)]
    rate: Option<u64>,
    /// Print each line as JSON
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
        for note in &request.cores.notes {
            eprintln!("vtax-place: {}", output::plain(note));
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
        let cores = self.named.choose(tree)?;
        let predictor = self.predictor.map(read).transpose()?;
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

fn read(path: PathBuf) -> Result<Predictor, Error> {
    let name = path.display().to_string();
    let wrong = |reason: &dyn ToString| Error::misuse(&name, reason.to_string(), NAME_RUN);
    let text = fs::read_to_string(&path).map_err(|error| wrong(&vtax_cli::reason(&error)))?;
    Predictor::parse(&text).map_err(|error| wrong(&error))
}

const NAME_RUN: &str = "name the run.json of a `vtax place measure` run that has a predictor";
