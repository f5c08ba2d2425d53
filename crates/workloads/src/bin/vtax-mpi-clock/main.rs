//! Measures what `MPI_Wtime` is worth on this machine: its resolution, its smallest step, and what
//! a reading costs.
//!
//! This is a separate program because vtax-agent is static and cannot load a library.

mod mpi_sys;

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::mpi_sys::Mpi;

/// The libraries of Open MPI 4 and MPICH 4, whichever exists.
const LIBRARIES: [&str; 3] = ["libmpi.so.40", "libmpi.so", "libmpich.so.12"];
/// The exit code when there is no MPI.
const NONE: u8 = 3;
/// The number of successive readings.
const READINGS: u32 = 1_000;
/// The most readings while the clock stands still: a clock with 10 ms ticks moves within a million
/// readings of 10 ns.
const MOST_READINGS: u32 = 4_000_000;

#[derive(Debug, Serialize)]
struct Clock {
    library: &'static str,
    /// What `MPI_Wtick` claims.
    resolution_ns: f64,
    /// The smallest step that is not zero; `None`: the clock stood still.
    smallest_step_ns: Option<f64>,
    /// The mean cost of a reading.
    reading_ns: f64,
    /// The number of steps back.
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
