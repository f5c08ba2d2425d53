//! The command line of `vtax-agent prices`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use vtax_sys::terminal::{Error, output, units};

use crate::prices::{measure, names};

/// Measure what system calls, page faults, processes and the like cost here, as JSON
///
/// Nanoseconds of each operation in some contexts: the median of batches, with the quartiles `low`
/// and `high`. What cannot run here is absent with its reason. Stays on one CPU, except where two
/// are named; needs no root.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vtax-agent prices\n  vtax-agent prices --list\n  \
    vtax-agent prices --only stat,open,fork --seconds 1 --folder /tmp"
)]
pub struct PricesArguments {
    /// Time for everything (0.5 to 60)
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// What to measure; default: all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_possible_values = true,
          value_parser = PossibleValuesParser::new(names().into_iter().map(|(name, _)| name)))]
    only: Vec<String>,
    /// Where files are made, in a folder that is removed at the end; default: /var/tmp, or else here
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// List the names and their contexts
    #[arg(long)]
    list: bool,
}

impl PricesArguments {
    /// Measure and print.
    ///
    /// Fails when the standard output cannot be written.
    pub fn carry_out(&self) -> Result<(), Error> {
        if !self.list {
            return output::json(&measure(&self.only, self.seconds, self.folder.as_deref()));
        }
        let line = |(name, contexts): (&str, Vec<&str>)| format!("{name}: {}", contexts.join("; "));
        let lines: Vec<String> = names().into_iter().map(line).collect();
        output::line(&lines.join("\n"))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    let allowed = Duration::from_millis(500)..=Duration::from_secs(60);
    let fits = allowed.contains(&time).then_some(time);
    fits.ok_or_else(|| "not from 0.5s to 60s".to_owned())
}
