//! The command line of `vtax-agent probe`.

use std::time::Duration;

use clap::Args;
use vtax_sys::terminal::{Error, output, units};

use crate::probe::{Probe, ProbeOptions, describe, measure};

/// Measure caches, TLBs and the floating-point unit, and show CPUID's claims (docs/tune.md)
///
/// Medians of 20 runs with 95 % intervals. Each quantity that could not be measured has a reason.
/// Takes 20 s at most, on a slow machine some seconds more, and stays on one CPU.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vtax-agent probe\n  vtax-agent probe l1 fma\n  \
    vtax-agent probe --json --seconds 60 > probes.json"
)]
pub struct ProbeArguments {
    /// What to measure; default: all
    #[arg(value_name = "PROBE", value_enum, hide_possible_values = false)]
    probes: Vec<Probe>,
    /// Time for everything (1 to 600)
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    seconds: Duration,
    /// Runs of each quantity, at least 6: fewer have no 95 % interval
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(6..=1000))]
    runs: u16,
    /// JSON, with the curves of latency against working set
    #[arg(long)]
    json: bool,
}

impl ProbeArguments {
    /// Measure and print.
    ///
    /// Fails when the processor's counter cannot time, or the standard output cannot be written.
    pub fn carry_out(&self) -> Result<(), Error> {
        let found = measure(&ProbeOptions {
            probes: self.probes.clone(),
            runs: usize::from(self.runs),
            time: self.seconds,
        })?;
        if self.json {
            output::json(&found)
        } else {
            output::line(&describe(&found))
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(600);
    let fits = allowed.contains(&time).then_some(time);
    fits.ok_or_else(|| "not from 1s to 600s".to_owned())
}
