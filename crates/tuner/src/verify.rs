//! Checks a compiled kernel against the naive product.
//!
//! The bound of each entry holds for any order of summation: with u the unit roundoff and
//! `gamma(n)` = n u / (1 - n u), |computed - exact| <= `gamma(k + 3)` (|alpha| |A| |B| + |beta|
//! |C|) (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 3.5); it is three
//! more than k because of alpha, beta and the last addition. The reference is summed in double
//! precision and has its own bound, which is added.

use crate::element::Element;
use crate::error::{Error, Value};
use crate::kernel::Gemm;
use crate::problem::{Matrix, MatrixMut, Problem};

/// Random numbers that are the same everywhere: `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub(crate) struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Numbers from -1 to 1, in steps of 2^-22, so that single precision can hold them too.
    pub(crate) fn fill<T: Element>(&mut self, count: usize) -> Vec<T> {
        let small = |bits: u64| u32::try_from(bits >> 41).map_or(0.0, f64::from);
        (0..count)
            .map(|_| T::nearest(small(self.next()) / f64::from(1 << 22) - 1.0))
            .collect()
    }
}

/// Compare one product with the reference: `before` is C before the product, `after` the result.
pub fn compare<T: Element>(
    problem: &Problem<'_, T>,
    before: &Matrix<'_, T>,
    after: &Matrix<'_, T>,
) -> Result<(), Error> {
    let gamma = |unit: f64| {
        let nu = u32::try_from(problem.k + 3).map_or(f64::INFINITY, f64::from) * unit;
        nu / (1.0 - nu)
    };
    let gamma = gamma(T::UNIT_ROUNDOFF) + gamma(f64::EPSILON / 2.0);
    let (alpha, beta): (f64, f64) = (problem.alpha.into(), problem.beta.into());
    for column in 0..problem.n {
        for row in 0..problem.m {
            let (sum, size) = reference(problem, row, column);
            let old: f64 = before.data[column * before.leading + row].into();
            let kept = if beta == 0.0 { 0.0 } else { beta * old };
            let want = alpha * sum + kept;
            let bound = gamma * (alpha.abs() * size + kept.abs());
            let got: f64 = after.data[column * after.leading + row].into();
            if (got - want).abs() <= bound {
                continue;
            }
            return Err(Error::Wrong {
                what: shape(problem),
                row,
                column,
                got: Value(got),
                want: Value(want),
                bound: Value(bound),
            });
        }
    }
    Ok(())
}

/// One entry of op(A) op(B), and the same entry of |op(A)| |op(B)|.
fn reference<T: Element>(problem: &Problem<'_, T>, row: usize, column: usize) -> (f64, f64) {
    let entry = |matrix: &Matrix<'_, T>, transposed: bool, row: usize, column: usize| -> f64 {
        let (row, column) = if transposed {
            (column, row)
        } else {
            (row, column)
        };
        matrix.data[column * matrix.leading + row].into()
    };
    (0..problem.k).fold((0.0, 0.0), |(sum, size), k| {
        let a = entry(&problem.a, problem.transpose_a, row, k);
        let product = a * entry(&problem.b, problem.transpose_b, k, column);
        (sum + product, size + product.abs())
    })
}

fn shape<T: Element>(problem: &Problem<'_, T>) -> String {
    let name = |transposed| if transposed { 'T' } else { 'N' };
    format!(
        "{}{} {} x {} x {}",
        name(problem.transpose_a),
        name(problem.transpose_b),
        problem.m,
        problem.n,
        problem.k
    )
}

/// Check shapes around each of the blocking factors, all transpositions, and one and two threads.
///
/// Fails with [`Error::Wrong`] for the first entry that is outside its bound.
pub fn verify_gemm<T: Element>(gemm: &Gemm<T>) -> Result<(), Error> {
    let parameters = gemm.parameters();
    let of = |value: u32| value as usize;
    let (mu, nu, ku) = (of(parameters.mu), of(parameters.nu), of(parameters.ku));
    let (mc, nb, nc) = (of(parameters.mc), of(parameters.nb), of(parameters.nc));
    let shapes = [
        (mu, nu, ku, 1),
        (2 * mu + 1, 2 * nu + 1, 2 * ku + 1, 2),
        (mu + 1, nu + 1, nb + 1, 1),
        (mc + mu - 1, nu, 2, 2),
        (mu - 1, nc + 1, 3, 1),
    ];
    for (index, (m, n, k, threads)) in shapes.into_iter().enumerate() {
        for transposed in 0..4 {
            let mut numbers = Numbers((index * 4 + transposed) as u64);
            let factors = [(1.0, 0.0), (1.0, 1.0), (-0.5, 0.5), (1.0, 0.0)][transposed];
            let transposed = (transposed & 1 != 0, transposed & 2 != 0);
            verify_shape(gemm, &mut numbers, (m, n, k), transposed, factors, threads)?;
        }
    }
    Ok(())
}

#[allow(clippy::many_single_char_names, reason = "DGEMM's names")]
fn verify_shape<T: Element>(
    gemm: &Gemm<T>,
    numbers: &mut Numbers,
    (m, n, k): (usize, usize, usize),
    (transpose_a, transpose_b): (bool, bool),
    (alpha, beta): (f64, f64),
    threads: usize,
) -> Result<(), Error> {
    let leading_a = if transpose_a { k } else { m }.max(1);
    let leading_b = if transpose_b { n } else { k }.max(1);
    let (a, b) = (numbers.fill(m * k), numbers.fill(k * n));
    let before = numbers.fill(m * n);
    let mut after = before.clone();
    let leading = m.max(1);
    let matrix = |data, leading| Matrix { data, leading };
    let problem = Problem {
        transpose_a,
        transpose_b,
        m,
        n,
        k,
        alpha: T::nearest(alpha),
        beta: T::nearest(beta),
        a: matrix(&a, leading_a),
        b: matrix(&b, leading_b),
    };
    let data = &mut after;
    gemm.run(&problem, MatrixMut { data, leading }, threads)?;
    compare(
        &problem,
        &matrix(&before, leading),
        &matrix(&after, leading),
    )
}
