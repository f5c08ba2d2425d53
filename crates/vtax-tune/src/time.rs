//! Times a compiled kernel.

use std::time::Instant;

use crate::element::Element;
use crate::error::Error;
use crate::kernel::{Gemm, Matrix, MatrixMut, Problem};
use crate::level2::{Gemv, GemvProblem, Ger, GerProblem, Strided, StridedMut};
use crate::verify::Numbers;

/// One timing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// 10^9 operations per second: 2 n^3 for a product of matrices, 2 n^2 for GEMV and GER.
    pub gflops: f64,
    /// Of one call.
    pub seconds: f64,
}

/// Matrices to multiply: made once, for any number of timings of any kernels.
#[derive(Debug)]
pub struct GemmTimer<T> {
    size: usize,
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T>,
}

impl<T: Element> GemmTimer<T> {
    /// Square matrices of random numbers.
    pub fn new(size: usize) -> Self {
        let mut numbers = Numbers(1);
        let mut matrix = || numbers.fill(size * size);
        Self {
            size,
            a: matrix(),
            b: matrix(),
            c: matrix(),
        }
    }

    /// Time one product C = op(A) op(B).
    pub fn time(
        &mut self,
        gemm: &Gemm<T>,
        (transpose_a, transpose_b): (bool, bool),
        threads: usize,
    ) -> Result<Timing, Error> {
        let size = self.size;
        let leading = size.max(1);
        let problem = Problem {
            transpose_a,
            transpose_b,
            m: size,
            n: size,
            k: size,
            alpha: T::ONE,
            beta: T::ZERO,
            a: Matrix {
                data: &self.a,
                leading,
            },
            b: Matrix {
                data: &self.b,
                leading,
            },
        };
        let c = MatrixMut {
            data: &mut self.c,
            leading,
        };
        let start = Instant::now();
        gemm.run(&problem, c, threads)?;
        Ok(timing(size, 3, start))
    }
}

/// 2 size^power operations since `start`.
fn timing(size: usize, power: i32, start: Instant) -> Timing {
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    let size = u32::try_from(size).map_or(f64::INFINITY, f64::from);
    Timing {
        gflops: 2.0 * size.powi(power) / seconds / 1e9,
        seconds,
    }
}

/// A matrix and two vectors, for any number of timings of GEMV and GER.
#[derive(Debug)]
pub struct Level2Timer<T> {
    size: usize,
    a: Vec<T>,
    x: Vec<T>,
    y: Vec<T>,
}

impl<T: Element> Level2Timer<T> {
    /// A square matrix and vectors of random numbers.
    pub fn new(size: usize) -> Self {
        let mut numbers = Numbers(2);
        Self {
            size,
            a: numbers.fill(size * size),
            x: numbers.fill(size),
            y: numbers.fill(size),
        }
    }

    /// Time y = op(A) x.
    pub fn gemv(&mut self, gemv: &Gemv<T>, transpose: bool) -> Result<Timing, Error> {
        let problem = GemvProblem {
            transpose,
            m: self.size,
            n: self.size,
            alpha: T::ONE,
            a: Matrix {
                data: &self.a,
                leading: self.size.max(1),
            },
            x: Strided {
                data: &self.x,
                increment: 1,
            },
            beta: T::ZERO,
        };
        let y = StridedMut {
            data: &mut self.y,
            increment: 1,
        };
        let start = Instant::now();
        gemv.run(&problem, y)?;
        Ok(timing(self.size, 2, start))
    }

    /// Time A = A + alpha x y transposed, with an alpha that keeps A small.
    pub fn ger(&mut self, ger: &Ger<T>) -> Result<Timing, Error> {
        let vector = |data| Strided { data, increment: 1 };
        let problem = GerProblem {
            m: self.size,
            n: self.size,
            alpha: T::nearest(1.0 / 1024.0),
            x: vector(&self.x),
            y: vector(&self.y),
        };
        let a = MatrixMut {
            data: &mut self.a,
            leading: self.size.max(1),
        };
        let start = Instant::now();
        ger.run(&problem, a)?;
        Ok(timing(self.size, 2, start))
    }
}

/// Time one product of square matrices, after one that is not timed.
pub fn time_gemm<T: Element>(
    gemm: &Gemm<T>,
    size: usize,
    transpose_a: bool,
    transpose_b: bool,
    threads: usize,
) -> Result<Timing, Error> {
    let mut timer = GemmTimer::new(size);
    timer.time(gemm, (transpose_a, transpose_b), threads)?;
    timer.time(gemm, (transpose_a, transpose_b), threads)
}
