//! The verbs of Xen's recordings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use vtax_sys::terminal::{Error, output, units};

use crate::record::cli::skew;
use crate::record::skew::Skew;

use super::{ImportOptions, Imported, LiveOptions, import, record};

/// Make a recording of what `xentrace` has written on a Xen host
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  xentrace -D -e all -T 10 trace\n  \
    vtax-host import-xen trace --tsc-hz 2400000000 --every 1ms --out run")]
pub struct ImportXenArguments {
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

/// Record what Xen does, in dom0 by way of xentrace, until SIGINT or SIGTERM
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vtax-host record-xen --every 1ms --out run")]
pub struct RecordXenArguments {
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = units::duration)]
    every: Duration,
    /// Only xen: other events have other recorders
    #[arg(long, value_name = "NAMES", value_parser = only_xen)]
    events: Option<String>,
    /// The program xentrace
    #[arg(long, value_name = "PATH", default_value = "xentrace")]
    xentrace: PathBuf,
    /// Xen's buffer for each CPU; the first recording since Xen's boot decides
    // The emulated machine's own script gives it before the user's.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = buffer,
          overrides_with = "buffer")]
    buffer: u64,
    /// Keep the trace itself too, for import-xen and xenalyze
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// A guest's clock minus this machine's, and the bound of its error, to keep with the rows
    #[arg(long, value_name = "NS,NS", hide = true, value_parser = skew,
          allow_hyphen_values = true)]
    guest_clock: Option<Skew>,
    /// Folder for the files; made if need be
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
}

fn only_xen(names: &str) -> Result<String, String> {
    if names == "xen" {
        return Ok(names.to_owned());
    }
    Err("only xen is recorded in dom0; --from guest records other events".into())
}

/// More pages than Xen can list for a CPU are refused, not cut by Xen.
fn buffer(text: &str) -> Result<u64, String> {
    let bytes = units::size(text)?;
    if (4096..=64 << 20).contains(&bytes) {
        return Ok(bytes);
    }
    Err("not between 4K and 64M".into())
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

impl ImportXenArguments {
    /// Import the trace; fails when it is not one.
    pub fn carry_out(self) -> Result<(), Error> {
        import_xen(self)
    }
}

impl RecordXenArguments {
    /// Record until a signal; fails as [`record`] does.
    pub fn carry_out(self) -> Result<(), Error> {
        // It can only ask for what is recorded anyway.
        drop(self.events);
        let options = LiveOptions {
            xentrace: self.xentrace,
            every: self.every,
            buffer: self.buffer,
            raw: self.raw,
            guest_clock: self.guest_clock,
        };
        tell_of_xen(&record(&options, &self.out)?, &self.out, self.json)
    }
}

fn import_xen(arguments: ImportXenArguments) -> Result<(), Error> {
    let source = ImportOptions {
        trace: arguments.trace,
        tsc_hz: arguments.tsc_hz,
        every: arguments.every,
        xenperf: arguments.xenperf_before.zip(arguments.xenperf_after),
    };
    let imported = import(&source, &arguments.out)?;
    tell_of_xen(&imported, &arguments.out, arguments.json)
}

fn tell_of_xen(imported: &Imported, out: &Path, json: bool) -> Result<(), Error> {
    if json {
        return output::json(imported);
    }
    for warning in &imported.warnings {
        eprintln!("vtax: {warning}");
    }
    output::line(&format!(
        "{} rows of {} records; in {}",
        imported.rows,
        imported.records,
        out.display()
    ))
}
