//! Checks GEMV and GER. They are products with a matrix of one column, so the bound of products
//! holds.

use crate::element::Element;
use crate::error::Error;
use crate::level2::{Gemv, GemvProblem, Ger, GerProblem, Strided, StridedMut, together};
use crate::problem::{Matrix, MatrixMut, Problem};
use crate::verify::{Numbers, compare};

/// Rows and columns around vectors, and around the largest unrolling of both.
const SHAPES: [(usize, usize); 6] = [(1, 1), (7, 3), (33, 13), (16, 12), (211, 25), (5, 130)];

/// Compare y = alpha op(A) x + beta y with the reference: `before` is y before the product.
pub fn compare_gemv<T: Element>(
    problem: &GemvProblem<'_, T>,
    before: &Strided<'_, T>,
    after: &Strided<'_, T>,
) -> Result<(), Error> {
    let (m, k) = if problem.transpose {
        (problem.n, problem.m)
    } else {
        (problem.m, problem.n)
    };
    let read = problem.alpha != T::ZERO;
    let x = together(&problem.x, if read { k } else { 0 });
    let product = Problem {
        transpose_a: problem.transpose,
        transpose_b: false,
        m,
        n: 1,
        k: if read { k } else { 0 },
        alpha: problem.alpha,
        beta: problem.beta,
        a: problem.a,
        b: column(&x),
    };
    let (before, after) = (together(before, m), together(after, m));
    compare(&product, &column(&before), &column(&after))
}

/// Compare A = A + alpha x y transposed with the reference: `before` is A before the update.
pub fn compare_ger<T: Element>(
    problem: &GerProblem<'_, T>,
    before: &Matrix<'_, T>,
    after: &Matrix<'_, T>,
) -> Result<(), Error> {
    let (x, y) = (
        together(&problem.x, problem.m),
        together(&problem.y, problem.n),
    );
    let product = Problem {
        transpose_a: false,
        transpose_b: true,
        m: problem.m,
        n: problem.n,
        k: 1,
        alpha: problem.alpha,
        beta: T::ONE,
        a: column(&x),
        b: column(&y),
    };
    compare(&product, before, after)
}

fn column<T>(data: &[T]) -> Matrix<'_, T> {
    let leading = data.len().max(1);
    Matrix { data, leading }
}

/// Check both forms of GEMV.
///
/// Fails with [`Error::Wrong`] for the first number that is outside its bound.
pub fn verify_gemv<T: Element>(gemv: &Gemv<T>) -> Result<(), Error> {
    for (m, n) in SHAPES {
        for (transpose, beta) in [(false, 0.0), (true, 0.0), (false, -0.5), (true, 1.0)] {
            let mut numbers = Numbers(m as u64);
            let (a, x) = (numbers.fill(m * n), numbers.fill(m.max(n)));
            let before: Vec<T> = numbers.fill(m.max(n));
            let mut after = before.clone();
            let problem = GemvProblem {
                transpose,
                m,
                n,
                alpha: T::nearest(1.5),
                a: Matrix {
                    data: &a,
                    leading: m,
                },
                x: one(&x),
                beta: T::nearest(beta),
            };
            let y = StridedMut {
                data: &mut after,
                increment: 1,
            };
            gemv.run(&problem, y)?;
            compare_gemv(&problem, &one(&before), &one(&after))?;
        }
    }
    Ok(())
}

/// Check GER.
///
/// Fails with [`Error::Wrong`] for the first number that is outside its bound.
pub fn verify_ger<T: Element>(ger: &Ger<T>) -> Result<(), Error> {
    for (m, n) in SHAPES {
        let mut numbers = Numbers(n as u64);
        let (x, y) = (numbers.fill(m), numbers.fill(n));
        let before: Vec<T> = numbers.fill(m * n);
        let mut after = before.clone();
        let problem = GerProblem {
            m,
            n,
            alpha: T::nearest(-0.5),
            x: one(&x),
            y: one(&y),
        };
        let matrix = |data| Matrix { data, leading: m };
        let data = &mut after;
        ger.run(&problem, MatrixMut { data, leading: m })?;
        compare_ger(&problem, &matrix(&before), &matrix(&after))?;
    }
    Ok(())
}

fn one<T>(data: &[T]) -> Strided<'_, T> {
    Strided { data, increment: 1 }
}
