//! The operands of timed kernels, made once for any number of runs of any kernels.
//!
//! This module reads no clock: in user-mode Linux a reading costs as much as a short product.

use crate::element::Element;
use crate::error::Error;
use crate::kernel::Gemm;
use crate::level2::{Gemv, GemvProblem, Ger, GerProblem, Strided, StridedMut};
use crate::problem::{Matrix, MatrixMut, Problem};
use crate::verify::Numbers;

/// Matrices to multiply.
#[derive(Debug)]
pub struct GemmOperands<T> {
    size: usize,
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T>,
}

impl<T: Element> GemmOperands<T> {
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

    /// Compute C = op(A) op(B).
    pub fn multiply(
        &mut self,
        gemm: &Gemm<T>,
        (transpose_a, transpose_b): (bool, bool),
        threads: usize,
    ) -> Result<(), Error> {
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
        gemm.run(&problem, c, threads)
    }
}

/// A matrix and two vectors, for GEMV and GER.
#[derive(Debug)]
pub struct Level2Operands<T> {
    size: usize,
    a: Vec<T>,
    x: Vec<T>,
    y: Vec<T>,
}

impl<T: Element> Level2Operands<T> {
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

    /// Compute y = op(A) x.
    pub fn gemv(&mut self, gemv: &Gemv<T>, transpose: bool) -> Result<(), Error> {
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
        gemv.run(&problem, y)
    }

    /// Compute A = A + alpha x y transposed, with an alpha that keeps A small.
    pub fn ger(&mut self, ger: &Ger<T>) -> Result<(), Error> {
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
        ger.run(&problem, a)
    }
}
