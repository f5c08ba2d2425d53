//! GEMM of small matrices, straight from where they lie: packing them, as kernels need it, would
//! take longer than the product.
//!
//! The code is compiled for AVX2 with FMA and runs where the processor has both, whatever the
//! kernels were tuned for.

#![allow(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "only inside the function with the instructions is code compiled for them"
)]

use vtax_tuner::{Element, MatrixMut, Problem};

/// Rows, columns and steps of the largest product that is computed here.
const MOST: usize = 32;
/// Columns of a block of C: with two registers of rows, its sums and operands fill 16 registers.
const COLUMNS: usize = 4;

/// C = alpha op(A) op(B) + beta C, when the matrices are small; otherwise nothing is done, and the
/// answer is false. The arguments have been checked.
///
/// `R` numbers fill two registers, `H` one, `Q` half of one.
pub fn gemm<T: Element, const R: usize, const H: usize, const Q: usize>(
    problem: &Problem<'_, T>,
    c: &mut MatrixMut<'_, T>,
) -> bool {
    let small = [problem.m, problem.n, problem.k]
        .iter()
        .all(|size| *size <= MOST);
    #[cfg(target_arch = "x86_64")]
    if small && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has these instructions.
        unsafe { fused::<T, R, H, Q>(problem, c) };
        return true;
    }
    // Elsewhere fused operations may be calls.
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused<T: Element, const R: usize, const H: usize, const Q: usize>(
    problem: &Problem<'_, T>,
    c: &mut MatrixMut<'_, T>,
) {
    match (problem.transpose_a, problem.transpose_b) {
        (false, false) => product::<T, R, H, Q, false, false>(problem, c),
        (false, true) => product::<T, R, H, Q, false, true>(problem, c),
        (true, false) => product::<T, R, H, Q, true, false>(problem, c),
        (true, true) => product::<T, R, H, Q, true, true>(problem, c),
    }
}

#[inline(always)]
fn product<
    T: Element,
    const R: usize,
    const H: usize,
    const Q: usize,
    const TA: bool,
    const TB: bool,
>(
    problem: &Problem<'_, T>,
    c: &mut MatrixMut<'_, T>,
) {
    let mut row = 0;
    while row < problem.m {
        let left = problem.m - row;
        row += if left >= R {
            rows::<T, R, TA, TB>(problem, c, row)
        } else if left >= H {
            rows::<T, H, TA, TB>(problem, c, row)
        } else if left >= Q {
            rows::<T, Q, TA, TB>(problem, c, row)
        } else {
            rows::<T, 1, TA, TB>(problem, c, row)
        };
    }
}

/// Compute `R` rows of C.
#[inline(always)]
fn rows<T: Element, const R: usize, const TA: bool, const TB: bool>(
    problem: &Problem<'_, T>,
    c: &mut MatrixMut<'_, T>,
    row: usize,
) -> usize {
    let mut column = 0;
    while problem.n - column >= COLUMNS {
        block::<T, R, COLUMNS, TA, TB>(problem, c, row, column);
        column += COLUMNS;
    }
    while column < problem.n {
        block::<T, R, 1, TA, TB>(problem, c, row, column);
        column += 1;
    }
    R
}

/// Compute a block of `R` rows and `C` columns of C.
#[inline(always)]
fn block<T: Element, const R: usize, const C: usize, const TA: bool, const TB: bool>(
    problem: &Problem<'_, T>,
    c: &mut MatrixMut<'_, T>,
    row: usize,
    column: usize,
) {
    let Problem { alpha, beta, .. } = *problem;
    let steps = if alpha == T::ZERO { 0 } else { problem.k };
    let (a, b) = (&problem.a, &problem.b);
    let mut sums = [[T::ZERO; R]; C];
    let left = Strip::<T, R>::new::<TA>(a.data, a.leading, row, steps);
    let right = if TB {
        Strip::<T, C>::new::<false>(b.data, b.leading, column, steps)
    } else {
        Strip::<T, C>::new::<true>(b.data, b.leading, column, steps)
    };
    for step in 0..steps {
        let (left, right) = (left.numbers(step), right.numbers(step));
        for (sums, right) in sums.iter_mut().zip(right) {
            for (sum, left) in sums.iter_mut().zip(left) {
                *sum = left.fused(right, *sum);
            }
        }
    }
    for (index, sums) in sums.iter().enumerate() {
        let start = (column + index) * c.leading + row;
        for (to, sum) in c.data[start..start + R].iter_mut().zip(sums) {
            // What C has before may be no number, and does not count when beta is 0.
            let before = if beta == T::ZERO { T::ZERO } else { *to * beta };
            *to = sum.fused(alpha, before);
        }
    }
}

/// `N` rows of A or columns of B, of which each step takes one number each.
enum Strip<'a, T, const N: usize> {
    /// Those of one step lie side by side; the next step's this far away.
    Along(&'a [T], usize),
    /// Each lies in a stored column of its own.
    Across([&'a [T]; N]),
}

impl<'a, T: Element, const N: usize> Strip<'a, T, N> {
    #[inline(always)]
    fn new<const ACROSS: bool>(data: &'a [T], leading: usize, first: usize, steps: usize) -> Self {
        if steps == 0 {
            return Self::Along(&[], 0);
        }
        if !ACROSS {
            return Self::Along(&data[first..first + (steps - 1) * leading + N], leading);
        }
        let mut columns = [&data[..0]; N];
        for (index, column) in columns.iter_mut().enumerate() {
            let start = (first + index) * leading;
            *column = &data[start..start + steps];
        }
        Self::Across(columns)
    }

    #[inline(always)]
    fn numbers(&self, step: usize) -> [T; N] {
        let mut found = [T::ZERO; N];
        match self {
            Self::Along(data, leading) => {
                found.copy_from_slice(&data[step * leading..step * leading + N]);
            }
            Self::Across(columns) => {
                for (number, column) in found.iter_mut().zip(columns) {
                    *number = column[step];
                }
            }
        }
        found
    }
}

#[cfg(test)]
#[allow(clippy::many_single_char_names, reason = "they are BLAS's own")]
mod tests {
    use super::*;
    use crate::plain;

    /// Every small shape gives the plain product, to rounding, also between other numbers.
    fn agrees<T: crate::kernels::Number>(m: usize, n: usize, k: usize, transposed: [bool; 2]) {
        let mut random = fastrand::Rng::with_seed(1 + u64::try_from(m * n + k).unwrap());
        let mut matrix = |rows: usize, columns: usize| -> (Vec<T>, usize) {
            let leading = rows + random.usize(0..3);
            let entry = |_| T::nearest(random.f64() - 0.5);
            ((0..leading * columns).map(entry).collect(), leading)
        };
        let [ta, tb] = transposed;
        let (a, leading_a) = if ta { matrix(k, m) } else { matrix(m, k) };
        let (b, leading_b) = if tb { matrix(n, k) } else { matrix(k, n) };
        let (c, leading_c) = matrix(m, n);
        for (alpha, beta) in [(1.0, 0.0), (-0.5, 1.0), (0.0, 2.0), (2.0, 0.5)] {
            let problem = Problem {
                transpose_a: ta,
                transpose_b: tb,
                m,
                n,
                k,
                alpha: T::nearest(alpha),
                beta: T::nearest(beta),
                a: vtax_tuner::Matrix {
                    data: &a,
                    leading: leading_a,
                },
                b: vtax_tuner::Matrix {
                    data: &b,
                    leading: leading_b,
                },
            };
            let (mut small, mut wanted) = (c.clone(), c.clone());
            let mut own = MatrixMut {
                data: &mut small,
                leading: leading_c,
            };
            if !T::small(&problem, &mut own) {
                println!("skipped: this processor has no AVX2 with FMA");
                return;
            }
            plain::gemm(
                &problem,
                MatrixMut {
                    data: &mut wanted,
                    leading: leading_c,
                },
            );
            for (at, (small, wanted)) in small.iter().zip(&wanted).enumerate() {
                let (small, wanted): (f64, f64) = ((*small).into(), (*wanted).into());
                let bound = 200.0 * T::UNIT_ROUNDOFF;
                assert!(
                    (small - wanted).abs() <= bound,
                    "{m} {n} {k} {transposed:?} {at}"
                );
                let outside = at % leading_c >= m;
                assert!(!outside || small.to_bits() == wanted.to_bits(), "{at}");
            }
        }
    }

    #[test]
    fn every_shape_is_the_plain_product() {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            for m in 1..=MOST {
                for (n, k) in [(1, 1), (3, 5), (4, 4), (7, 32), (32, 7), (31, 2), (32, 32)] {
                    agrees::<f64>(m, n, k, transposed);
                    agrees::<f32>(m, n, k, transposed);
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_in_c_does_not_count_when_beta_is_zero() {
        let (a, mut c) = ([1.0; 16], [f64::NAN; 16]);
        let one = || vtax_tuner::Matrix {
            data: &a,
            leading: 4,
        };
        let problem = Problem {
            transpose_a: false,
            transpose_b: false,
            m: 4,
            n: 4,
            k: 4,
            alpha: 1.0,
            beta: 0.0,
            a: one(),
            b: one(),
        };
        let mut own = MatrixMut {
            data: &mut c,
            leading: 4,
        };
        if gemm::<f64, 8, 4, 2>(&problem, &mut own) {
            assert!(c.iter().all(|number| number.to_bits() == 4.0_f64.to_bits()));
        }
    }

    #[test]
    fn larger_products_are_left_to_kernels() {
        let a = [1.0; 33 * 33];
        let mut c = a;
        let one = || vtax_tuner::Matrix {
            data: &a,
            leading: 33,
        };
        let problem = Problem {
            transpose_a: false,
            transpose_b: false,
            m: 33,
            n: 1,
            k: 1,
            alpha: 1.0,
            beta: 0.0,
            a: one(),
            b: one(),
        };
        let mut own = MatrixMut {
            data: &mut c,
            leading: 33,
        };
        assert!(!gemm::<f64, 8, 4, 2>(&problem, &mut own));
    }
}
