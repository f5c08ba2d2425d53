//! `dgemm`: matrix multiplication in plain Rust.

use std::hint::black_box;

use serde_json::Map;

use crate::bound::Bound;
use crate::cast;
use crate::checksum::Checksum;
use crate::matrix::{Matrix, is_product, multiply};
use crate::meter::Meter;
use crate::options::{Kind, OptionSpec, SEED};
use crate::workload::{Description, Job, Outcome, Workload};
use vtax_sys::terminal::Error;

#[derive(Debug)]
pub struct Dgemm;

/// The remedy where there is no memory.
const SMALLER: &str = "give a smaller size, or a machine with more memory";

static DESCRIPTION: Description = Description {
    name: "dgemm",
    summary: "Multiplies two matrices of doubles, block by block, in plain Rust (no BLAS)",
    stresses: "Little: blocks stay in caches and TLB; the control that neither paging mode slows",
    unit: "multiplications",
    default_bound: Bound::Count(6),
    options: &[
        OptionSpec {
            name: "size",
            kind: Kind::Number(1, 16_384),
            default: Some("256"),
            help: "Rows and columns of the matrices",
        },
        SEED,
    ],
};

impl Workload for Dgemm {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let size = job.parameters.number("size");
        require_memory(job, size)?;
        let mut random = fastrand::Rng::with_seed(job.parameters.number("seed"));
        let rows = cast::index(size);
        let refused = |error| Error::failure("--size", error, SMALLER);
        // The first of the random numbers are b's: checksums are those of earlier versions, whose
        // matrices were stored by rows.
        let b = Matrix::random(rows, &mut random).map_err(refused)?;
        let a = Matrix::random(rows, &mut random).map_err(refused)?;
        let mut c = Matrix::zero(rows).map_err(refused)?;
        let meter = Meter::start();
        while job.limit.grant(1).is_some() {
            multiply(black_box(&a), black_box(&b), black_box(&mut c));
        }
        let usage = meter.stop();
        let done = job.limit.done();
        let mut details = Map::new();
        let flops = 2.0 * cast::float(size).powi(3) * cast::float(done);
        details.insert(
            "gflops".into(),
            (flops / usage.wall.as_secs_f64() / 1e9).into(),
        );
        Ok(Outcome {
            usage,
            operations: done,
            checksum: Some(checksum(&c)),
            verified: done == 0 || is_product(&a, &b, &c, c.n, &mut random),
            details,
        })
    }
}

/// Check that there is memory for three matrices.
fn require_memory(job: &Job<'_>, size: u64) -> Result<(), Error> {
    let bytes = 3 * 8 * size * size;
    match job.context.available_bytes {
        Some(available) if bytes > available => Err(Error::failure(
            "--size",
            format!("needs {bytes} bytes, and {available} bytes of memory are available"),
            SMALLER,
        )),
        _ => Ok(()),
    }
}

fn checksum(matrix: &Matrix) -> u64 {
    let mut checksum = Checksum::new();
    checksum.extend(matrix.entries.iter().map(|entry| entry.to_bits()));
    checksum.value()
}
