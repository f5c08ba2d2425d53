//! The command line of `vtax-agent tune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use vtax_sys::terminal::{Error, output, units};
use vtax_tuner::trials::{Form, Routine};
use vtax_tuner::{Precision, Vector};

use crate::tune::{Strategy, TuneOptions, describe, tune};

/// Find the best parameters of matrix kernels on this machine (docs/tune.md)
///
/// Kernels are generated as machine code, verified, and timed in turns with the best so far, in the
/// order of ATLAS. The budget is kept: if it ends before the search, the result is the best so far.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vtax-agent tune --export blas.toml\n  \
    vtax-agent tune --log tune.jsonl --budget 10m --search exhaustive\n  \
    vtax-agent tune --use blas.toml --json\n  \
    vtax-agent tune --cache-edge --use blas.toml")]
pub struct TuneArguments {
    /// JSON, with the rivals and the rejected candidates
    #[arg(long)]
    json: bool,
    /// ATLAS's line searches and the winner's neighbours, or all points of a grid
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Lines)]
    search: Order,
    /// Time for everything, such as 60s or 10m
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = seconds)]
    budget: Duration,
    /// File for JSON lines of each trial; if it exists, the search continues from it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["given", "cache_edge"])]
    log: Option<PathBuf>,
    /// Double, single or both
    #[arg(long, value_name = "d|s|both", value_enum, default_value_t = Precisions::D)]
    precision: Precisions,
    /// What to tune
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_values_t = Family::ALL)]
    routines: Vec<Family>,
    /// Rows and columns of the timed problems; less where that would take too long
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u16).range(16..=20_000))]
    size: u16,
    /// Threads of the matrix products
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Instead of a search, measure the parameters in this file
    #[arg(long = "use", id = "given", value_name = "FILE")]
    given: Option<PathBuf>,
    /// Write the result to this file, which --use and libvtaxblas read
    #[arg(long, value_name = "FILE", conflicts_with_all = ["given", "cache_edge"])]
    export: Option<PathBuf>,
    /// Instead of a search, time a product with L1 blocking only and with each cache edge
    #[arg(long)]
    cache_edge: bool,
    /// Rows and columns of that product
    #[arg(long, value_name = "N", default_value_t = 2500, requires = "cache_edge",
          value_parser = clap::value_parser!(u16).range(64..=20_000))]
    edge_size: u16,
    /// Runs of that product with each edge
    #[arg(long, value_name = "N", default_value_t = 20, requires = "cache_edge",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Only these instruction sets: portable, scalar, sse2, avx2, avx512
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = vector)]
    vectors: Option<Vec<Vector>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    Lines,
    Exhaustive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Precisions {
    D,
    S,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Family {
    Gemm,
    /// The form of GEMM that needs no transposition.
    GemmNn,
    Gemv,
    Ger,
}

impl Family {
    const ALL: [Self; 3] = [Self::Gemm, Self::Gemv, Self::Ger];
}

impl TuneArguments {
    /// Tune and print.
    ///
    /// Fails as [`tune`] does, and when the standard output cannot be written.
    pub fn carry_out(&self) -> Result<(), Error> {
        let found = tune(&self.options())?;
        if self.json {
            output::json(&found)
        } else {
            output::line(&describe(&found))
        }
    }

    fn options(&self) -> TuneOptions {
        let has = |family| self.routines.contains(&family);
        let level2 = Routine::ALL.into_iter().filter(|routine| match routine {
            Routine::GemvN | Routine::GemvT => has(Family::Gemv),
            Routine::Ger => has(Family::Ger),
        });
        let size = if self.cache_edge {
            self.edge_size
        } else {
            self.size
        };
        TuneOptions {
            strategy: match self.search {
                Order::Lines => Strategy::Lines,
                Order::Exhaustive => Strategy::Exhaustive,
            },
            budget: self.budget,
            log: self.log.clone(),
            precisions: match self.precision {
                Precisions::D => vec![Precision::Double],
                Precisions::S => vec![Precision::Single],
                Precisions::Both => vec![Precision::Double, Precision::Single],
            },
            forms: if has(Family::Gemm) {
                &Form::NAMES
            } else if has(Family::GemmNn) {
                &Form::NAMES[..1]
            } else {
                &[]
            },
            level2: level2.collect(),
            size: size.into(),
            threads: self.threads.into(),
            given: self.given.clone(),
            export: self.export.clone(),
            vectors: self.vectors.clone(),
            cache_edge_runs: self.cache_edge.then(|| self.runs.into()),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
    let fits = allowed.contains(&time).then_some(time);
    fits.ok_or_else(|| "not from 1s to 7d".to_owned())
}

fn vector(text: &str) -> Result<Vector, String> {
    let all = [
        Vector::Portable,
        Vector::Scalar,
        Vector::Sse2,
        Vector::Avx2,
        Vector::Avx512,
    ];
    let found = all.into_iter().find(|vector| vector.to_string() == text);
    found.ok_or_else(|| "not portable, scalar, sse2, avx2 or avx512".to_owned())
}
