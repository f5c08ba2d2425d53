//! The arguments of GEMM, and their check.

use crate::element::Element;
use crate::error::Error;

/// A matrix stored by columns.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    pub data: &'a [T],
    /// The distance from one column to the next: at least the number of rows.
    pub leading: usize,
}

/// A matrix stored by columns, for writing.
#[derive(Debug)]
pub struct MatrixMut<'a, T> {
    pub data: &'a mut [T],
    /// The distance from one column to the next: at least the number of rows.
    pub leading: usize,
}

/// C = alpha op(A) op(B) + beta C, as in BLAS: op(A) is m x k, op(B) is k x n.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a, T> {
    pub transpose_a: bool,
    pub transpose_b: bool,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Columns of op(A).
    pub k: usize,
    /// Factor of the product; 0: A and B are not read.
    pub alpha: T,
    /// Factor of C; 0: C is not read.
    pub beta: T,
    pub a: Matrix<'a, T>,
    pub b: Matrix<'a, T>,
}

/// Check the arguments in the order of DGEMM's tests, then the lengths, which BLAS cannot know.
#[allow(clippy::many_single_char_names, reason = "DGEMM's names")]
pub(crate) fn check<T: Element>(
    problem: &Problem<'_, T>,
    c: &MatrixMut<'_, T>,
) -> Result<(), Error> {
    let (m, n, k) = (problem.m, problem.n, problem.k);
    let stored = |transposed, rows, columns| {
        if transposed {
            (columns, rows)
        } else {
            (rows, columns)
        }
    };
    let a = stored(problem.transpose_a, m, k);
    let b = stored(problem.transpose_b, k, n);
    leading(8, "LDA", a.0, problem.a.leading)?;
    leading(10, "LDB", b.0, problem.b.leading)?;
    leading(13, "LDC", m, c.leading)?;
    if problem.alpha != T::ZERO && m > 0 && n > 0 && k > 0 {
        length(7, "A", a, problem.a.leading, problem.a.data.len())?;
        length(9, "B", b, problem.b.leading, problem.b.data.len())?;
    }
    length(12, "C", (m, n), c.leading, c.data.len())
}

pub(crate) fn leading(
    number: u32,
    name: &'static str,
    rows: usize,
    leading: usize,
) -> Result<(), Error> {
    if leading >= rows.max(1) {
        return Ok(());
    }
    let reason = format!("{leading} is less than the {} rows", rows.max(1));
    Err(Error::Argument {
        number,
        name,
        reason,
    })
}

pub(crate) fn length(
    number: u32,
    name: &'static str,
    (rows, columns): (usize, usize),
    leading: usize,
    length: usize,
) -> Result<(), Error> {
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let before = (columns - 1).checked_mul(leading);
    let needed = before.and_then(|before| before.checked_add(rows));
    if needed.is_some_and(|needed| needed <= length) {
        return Ok(());
    }
    let reason = format!(
        "{rows} x {columns} numbers with {leading} from column to column do not fit in {length}"
    );
    Err(Error::Argument {
        number,
        name,
        reason,
    })
}
