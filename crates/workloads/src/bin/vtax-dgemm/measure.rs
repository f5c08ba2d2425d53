//! Timing GEMM.

use std::ffi::c_int;
use std::time::Instant;

use anyhow::{Result, anyhow, bail, ensure};
use serde::Serialize;
use vtax_workloads::matrix::{Matrix, is_product};

use crate::blas_sys::{Blas, Precision};
use crate::identity::Identity;

/// The same matrices each time, so that runs differ only in the machine.
const SEED: u64 = 20_110_928;

/// What `vtax-dgemm` prints.
#[derive(Debug, Serialize)]
pub struct Rates {
    /// Rows of the matrices.
    pub n: u32,
    /// Columns of the product that were computed.
    pub columns: u32,
    /// Multiplications that were timed.
    pub times: u32,
    /// The routine that was timed, such as `dgemm`.
    pub routine: &'static str,
    /// Rate of the shortest time, 10^9 operations per second.
    pub best_gflops: f64,
    /// Rate of the median time.
    pub median_gflops: f64,
    /// The shortest time in seconds.
    pub best_s: f64,
    /// Was the result right? Always true in a printed result.
    pub verified: bool,
    pub library: Identity,
}

#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Rows of the matrices.
    pub n: u32,
    /// Columns of the second matrix, and of the product, that take part.
    pub columns: u32,
    /// Multiplications to time.
    pub times: u32,
    /// Time the first multiplication too, without a warm-up.
    pub cold: bool,
}

/// Multiply, after a warm-up unless `cold` is set, and check the last product.
///
/// Fails when there is no memory for the matrices, when `n` is too large for the library's
/// integers, or when the product is wrong.
pub fn measure<T: Precision>(blas: &Blas<T>, wanted: &Wanted, library: Identity) -> Result<Rates> {
    let Wanted {
        n,
        columns,
        times,
        cold,
    } = *wanted;
    ensure!(columns <= n, "--columns {columns}: the matrices have {n}");
    let only = c_int::try_from(columns)?;
    let mut random = fastrand::Rng::with_seed(SEED);
    let rows = usize::try_from(n)?;
    let refused = |_| anyhow!("no memory for a matrix of {n} rows; use a smaller --size");
    let a = Matrix::<T>::random(rows, &mut random).map_err(refused)?;
    let b = Matrix::random(rows, &mut random).map_err(refused)?;
    let mut c = Matrix::zero(rows).map_err(refused)?;
    if !cold {
        time(blas, &a, &b, only, &mut c)?;
    }
    let mut seconds = Vec::new();
    for _ in 0..times {
        // A call that does nothing must not pass the check with the product of an earlier call.
        c.entries.fill(T::NAN);
        seconds.push(time(blas, &a, &b, only, &mut c)?);
    }
    if !is_product(&a, &b, &c, usize::try_from(columns)?, &mut random) {
        let path = library.path.unwrap_or_default();
        bail!(
            "{}: its product of two matrices is wrong; do not use this library on this machine",
            path.display()
        );
    }
    seconds.sort_by(f64::total_cmp);
    let operations = 2.0 * f64::from(n).powi(2) * f64::from(columns);
    Ok(Rates {
        n,
        columns,
        times,
        routine: T::ROUTINE
            .to_str()
            .unwrap_or_default()
            .trim_end_matches('_'),
        best_gflops: operations / seconds[0] / 1e9,
        median_gflops: operations / median(&seconds) / 1e9,
        best_s: seconds[0],
        verified: true,
        library,
    })
}

fn time<T: Precision>(
    blas: &Blas<T>,
    a: &Matrix<T>,
    b: &Matrix<T>,
    columns: c_int,
    c: &mut Matrix<T>,
) -> Result<f64> {
    let n = c_int::try_from(c.n)?;
    let begin = Instant::now();
    let done = blas.multiply(n, columns, &a.entries, &b.entries, &mut c.entries);
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(done, "matrices of {n} rows do not have n² entries");
    Ok(seconds)
}

/// The median of sorted numbers, of which there must be at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[1.0]).to_bits(), 1.0_f64.to_bits());
        assert_eq!(median(&[1.0, 3.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[1.0, 2.0, 9.0]).to_bits(), 2.0_f64.to_bits());
    }
}
