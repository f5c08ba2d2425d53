//! Times matrix multiplication through the BLAS that the system resolves, and says which it is.

mod blas_sys;
mod identity;
mod measure;
mod needed;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use serde_json::json;
use vtax_sys::pinning::stay_on_last;

use crate::blas_sys::{Blas, Precision};
use crate::identity::Identity;
use crate::measure::Wanted;
use crate::needed::Need;

/// Time matrix multiplication (DGEMM or SGEMM) through the BLAS that the system resolves
///
/// The result is JSON. 1 Gflop/s is 10^9 operations per second, 2 n^3 for one multiplication.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    /// Rows and columns of the matrices
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=46_340))]
    size: u32,
    /// Multiply by these first columns only; the matrices lie in memory whole [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=46_340))]
    columns: Option<u32>,
    /// Timed multiplications, after an untimed one (but see --cold)
    #[arg(long, value_name = "K", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    times: u32,
    /// Time the first multiplication too: there is no untimed one before it
    #[arg(long)]
    cold: bool,
    /// Double or single precision
    #[arg(long, value_name = "P", default_value = "d")]
    precision: Letter,
    /// Stay on one CPU, the last that may be used, like vtax-agent tune with one thread
    #[arg(long)]
    one_cpu: bool,
    /// The library: a name that the loader resolves, or a path
    #[arg(long, value_name = "LIBRARY", default_value = "libblas.so.3")]
    library: String,
    /// Only say which library it is
    #[arg(long, conflicts_with = "identify_for")]
    identify: bool,
    /// Only say which BLAS another program gets (a path, or a name in PATH)
    #[arg(long, value_name = "PROGRAM")]
    identify_for: Option<PathBuf>,
}

/// The first letter of a routine's name.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Letter {
    D,
    S,
}

const EXAMPLES: &str = "\
Examples:
  vtax-dgemm --size 2000 --times 10
  vtax-dgemm --precision s --library libblis.so.4
  vtax-dgemm --identify
  vtax-dgemm --identify-for hpcc
  OPENBLAS_NUM_THREADS=1 vtax-dgemm --library libopenblas.so.0

Exit code: 0 done, 1 failed (also when the result is wrong), 2 misuse.";

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return vtax_sys::terminal::explain("vtax-dgemm", &error),
    };
    let done = match arguments.precision {
        Letter::D => carry_out::<f64>(&arguments),
        Letter::S => carry_out::<f32>(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vtax-dgemm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out<T: Precision>(arguments: &Arguments) -> Result<()> {
    if let Some(program) = &arguments.identify_for {
        return print(&identify_for::<T>(program)?);
    }
    if arguments.one_cpu {
        // Done before the library has threads.
        let pinned = stay_on_last();
        pinned.map_err(|reason| anyhow::anyhow!("--one-cpu: {reason}; leave it out"))?;
    }
    let blas = load::<T>(&arguments.library)?;
    let library = Identity::of(&blas, &arguments.library);
    if arguments.identify {
        return print(&json!({ "library": library }));
    }
    let wanted = Wanted {
        n: arguments.size,
        columns: arguments.columns.unwrap_or(arguments.size),
        times: arguments.times,
        cold: arguments.cold,
    };
    let result = measure::measure(&blas, &wanted, library)?;
    print(&result)
}

fn identify_for<T: Precision>(program: &std::path::Path) -> Result<serde_json::Value> {
    Ok(match needed::blas_of(program)? {
        Need::Library { requested, load_as } => {
            json!({ "library": Identity::of(&load::<T>(&load_as)?, &requested) })
        }
        Need::None(reason) => json!({ "library": null, "reason": reason }),
    })
}

fn load<T: Precision>(library: &str) -> Result<Blas<T>> {
    Blas::load(library)
        .with_context(|| library.to_owned())
        .map_err(|error| {
            anyhow::anyhow!(
                "{error:#}; install a BLAS (apt-get install libopenblas0) or see --library"
            )
        })
}

fn print(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value)?;
    writeln!(io::stdout(), "{text}").context("standard output")
}
