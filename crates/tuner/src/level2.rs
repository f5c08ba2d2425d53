//! GEMV and GER on generated kernels.

use std::borrow::Cow;

use crate::element::Element;
use crate::error::Error;
use crate::parameters::Level2;
use crate::problem::{Matrix, MatrixMut, leading, length};
use crate::processor::Processor;
use crate::unsafe_columns::{Columns, Routine};

/// A vector with an increment, as in BLAS: a negative increment goes backward from the end.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a, T> {
    /// Its numbers, and what lies between them.
    pub data: &'a [T],
    /// The distance from one number to the next; not 0.
    pub increment: isize,
}

/// A vector with an increment, for writing.
#[derive(Debug)]
pub struct StridedMut<'a, T> {
    /// Its numbers, and what lies between them.
    pub data: &'a mut [T],
    /// The distance from one number to the next; not 0.
    pub increment: isize,
}

/// y = alpha op(A) x + beta y, where A has m rows and n columns.
#[derive(Debug, Clone, Copy)]
pub struct GemvProblem<'a, T> {
    pub transpose: bool,
    /// Rows of A.
    pub m: usize,
    /// Columns of A.
    pub n: usize,
    /// Factor of the product; 0: A and x are not read.
    pub alpha: T,
    pub a: Matrix<'a, T>,
    /// As many numbers as op(A) has columns.
    pub x: Strided<'a, T>,
    /// Factor of y; 0: y is not read.
    pub beta: T,
}

/// A = A + alpha x y transposed, where A has m rows and n columns.
#[derive(Debug, Clone, Copy)]
pub struct GerProblem<'a, T> {
    /// Rows of A.
    pub m: usize,
    /// Columns of A.
    pub n: usize,
    /// Factor of the product; 0: x and y are not read.
    pub alpha: T,
    /// m numbers.
    pub x: Strided<'a, T>,
    /// n numbers.
    pub y: Strided<'a, T>,
}

/// Compiled kernels of GEMV for one set of parameters.
#[derive(Debug)]
pub struct Gemv<T: Element> {
    plain: Columns<T>,
    transposed: Columns<T>,
}

/// Compiled kernels of GER for one set of parameters.
#[derive(Debug)]
pub struct Ger<T: Element> {
    columns: Columns<T>,
}

impl<T: Element> Gemv<T> {
    /// Generate the kernels.
    ///
    /// Fails when the parameters are not valid for this processor, or memory is short.
    pub fn compile(parameters: &Level2, processor: &Processor) -> Result<Self, Error> {
        Ok(Self {
            plain: Columns::compile(Routine::Plain, parameters, processor)?,
            transposed: Columns::compile(Routine::Transposed, parameters, processor)?,
        })
    }

    /// y = alpha op(A) x + beta y.
    ///
    /// Fails, before anything is written, with the number of the argument in DGEMV.
    pub fn run(&self, problem: &GemvProblem<'_, T>, y: StridedMut<'_, T>) -> Result<(), Error> {
        let (m, n) = (problem.m, problem.n);
        let (inputs, outputs) = if problem.transpose { (m, n) } else { (n, m) };
        leading(6, "LDA", m, problem.a.leading)?;
        increment(8, "INCX", problem.x.increment)?;
        increment(11, "INCY", y.increment)?;
        if m == 0 || n == 0 {
            return Ok(());
        }
        let product = problem.alpha != T::ZERO;
        if product {
            length(5, "A", (m, n), problem.a.leading, problem.a.data.len())?;
            fits(7, "X", inputs, problem.x.increment, problem.x.data.len())?;
        }
        fits(10, "Y", outputs, y.increment, y.data.len())?;
        let mut result = if problem.beta == T::ZERO {
            vec![T::ZERO; outputs]
        } else {
            let old = places(outputs, y.increment).map(|at| y.data[at] * problem.beta);
            old.collect()
        };
        if product {
            self.multiply(problem, inputs, &mut result);
        }
        for (at, number) in places(outputs, y.increment).zip(result) {
            y.data[at] = number;
        }
        Ok(())
    }

    fn multiply(&self, problem: &GemvProblem<'_, T>, inputs: usize, result: &mut [T]) {
        let (a, leading) = (problem.a.data, problem.a.leading);
        let x = together(&problem.x, inputs);
        if problem.transpose {
            let mut sums = vec![T::ZERO; result.len()];
            self.transposed.transposed(a, leading, &x, &mut sums);
            for (result, sum) in result.iter_mut().zip(sums) {
                *result += problem.alpha * sum;
            }
        } else {
            let x = scaled(&x, problem.alpha);
            self.plain.plain(a, leading, &x, result);
        }
    }
}

impl<T: Element> Ger<T> {
    /// Generate the kernels.
    ///
    /// Fails when the parameters are not valid for this processor, or memory is short.
    pub fn compile(parameters: &Level2, processor: &Processor) -> Result<Self, Error> {
        let columns = Columns::compile(Routine::Rank1, parameters, processor)?;
        Ok(Self { columns })
    }

    /// A = A + alpha x y transposed.
    ///
    /// Fails, before anything is written, with the number of the argument in DGER.
    #[allow(clippy::many_single_char_names, reason = "DGER's names")]
    pub fn run(&self, problem: &GerProblem<'_, T>, a: MatrixMut<'_, T>) -> Result<(), Error> {
        let (m, n) = (problem.m, problem.n);
        increment(5, "INCX", problem.x.increment)?;
        increment(7, "INCY", problem.y.increment)?;
        leading(9, "LDA", m, a.leading)?;
        if m == 0 || n == 0 || problem.alpha == T::ZERO {
            return Ok(());
        }
        fits(4, "X", m, problem.x.increment, problem.x.data.len())?;
        fits(6, "Y", n, problem.y.increment, problem.y.data.len())?;
        length(8, "A", (m, n), a.leading, a.data.len())?;
        let x = together(&problem.x, m);
        let y = scaled(&together(&problem.y, n), problem.alpha);
        self.columns.rank1(a.data, a.leading, &x, &y);
        Ok(())
    }
}

fn scaled<T: Element>(x: &[T], alpha: T) -> Vec<T> {
    x.iter().map(|number| *number * alpha).collect()
}

/// The numbers of a vector as a contiguous slice, copied only if they are not contiguous.
pub(crate) fn together<'a, T: Element>(vector: &Strided<'a, T>, count: usize) -> Cow<'a, [T]> {
    if vector.increment == 1 {
        return Cow::Borrowed(&vector.data[..count]);
    }
    let places = places(count, vector.increment);
    Cow::Owned(places.map(|at| vector.data[at]).collect())
}

/// The indices of a vector's numbers.
fn places(count: usize, increment: isize) -> impl Iterator<Item = usize> {
    let step = increment.unsigned_abs();
    let at = move |index: usize| {
        if increment < 0 {
            count - 1 - index
        } else {
            index
        }
    };
    (0..count).map(move |index| at(index) * step)
}

fn increment(number: u32, name: &'static str, increment: isize) -> Result<(), Error> {
    if increment != 0 {
        return Ok(());
    }
    let reason = "must not be 0".to_owned();
    Err(Error::Argument {
        number,
        name,
        reason,
    })
}

/// Check the length of a vector, which is a matrix of one row.
fn fits(
    number: u32,
    name: &'static str,
    count: usize,
    increment: isize,
    data: usize,
) -> Result<(), Error> {
    length(number, name, (1, count), increment.unsigned_abs(), data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the reference BLAS: where INCX is negative, KX = 1 - (LENX - 1) * INCX, counted from
    /// 1.
    #[test]
    fn a_negative_increment_begins_at_the_end() {
        let places = |count, increment| places(count, increment).collect::<Vec<_>>();
        assert_eq!(places(3, 2), [0, 2, 4]);
        assert_eq!(places(3, -2), [4, 2, 0]);
        assert_eq!(places(3, -1), [2, 1, 0]);
        assert_eq!(places(1, -5), [0]);
        assert!(places(0, -1).is_empty());
    }
}
