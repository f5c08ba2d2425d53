//! What `MPI_Wtime` is worth here: its resolution, its smallest step, and what a reading costs.
//!
//! A program of its own, because vtax-agent is static and cannot load a library.

mod mpi_sys;

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::mpi_sys::Mpi;

/// Of Open MPI 4 and MPICH 4, whichever there is.
const LIBRARIES: [&str; 3] = ["libmpi.so.40", "libmpi.so", "libmpich.so.12"];
/// The exit code where there is no MPI.
const NONE: u8 = 3;
/// Readings back to back.
const READINGS: u32 = 1_000;
/// As long as it stands still: a clock of 10 ms ticks moves within a million readings of 10 ns.
const MOST_READINGS: u32 = 4_000_000;

/// All in nanoseconds.
#[derive(Debug, Serialize)]
struct Clock {
    library: &'static str,
    /// What `MPI_Wtick` claims.
    resolution_ns: f64,
    /// The smallest step that is not zero; `None`: it stood still.
    smallest_step_ns: Option<f64>,
    /// A reading, the mean of all.
    reading_ns: f64,
    /// Steps back.
    backward: u32,
}

fn main() -> Result<ExitCode> {
    for library in LIBRARIES {
        match Mpi::start(library) {
            Ok(Some(mpi)) => {
                println!("{}", serde_json::to_string(&measure(&mpi, library))?);
                return Ok(ExitCode::SUCCESS);
            }
            Ok(None) => bail!("{library}: MPI_Init failed"),
            Err(_) => {}
        }
    }
    eprintln!("vtax-mpi-clock: there is none of {}", LIBRARIES.join(", "));
    Ok(ExitCode::from(NONE))
}

fn measure(mpi: &Mpi, library: &'static str) -> Clock {
    let (mut smallest, mut backward, mut count) = (None::<f64>, 0, 0_u32);
    let begin = mpi.wtime();
    let mut last = begin;
    while count < READINGS || (smallest.is_none() && count < MOST_READINGS) {
        let now = mpi.wtime();
        let step = now - last;
        if step > 0.0 {
            smallest = Some(smallest.map_or(step, |least| least.min(step)));
        } else if step < 0.0 {
            backward += 1;
        }
        (last, count) = (now, count + 1);
    }
    Clock {
        library,
        resolution_ns: mpi.wtick() * 1e9,
        smallest_step_ns: smallest.map(|step| step * 1e9),
        reading_ns: (last - begin) * 1e9 / f64::from(count),
        backward,
    }
}
