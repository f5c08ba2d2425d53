//! Square matrices stored by columns, as in Fortran; their product, and a check of a product.

use std::collections::TryReserveError;

use crate::cast;

/// The type of a matrix's numbers: `f64` or `f32`.
pub trait Number: Copy + Into<f64> + 'static {
    const ZERO: Self;
    const NAN: Self;
    /// The distance from 1 to the next number.
    const EPSILON: Self;

    /// Round a number to the nearest one of this type.
    fn nearest(value: f64) -> Self;
}

impl Number for f64 {
    const ZERO: Self = 0.0;
    const NAN: Self = Self::NAN;
    const EPSILON: Self = Self::EPSILON;

    fn nearest(value: f64) -> Self {
        value
    }
}

impl Number for f32 {
    const ZERO: Self = 0.0;
    const NAN: Self = Self::NAN;
    const EPSILON: Self = Self::EPSILON;

    fn nearest(value: f64) -> Self {
        cast::single(value)
    }
}

/// Rows of a block: three blocks of 64 times 64 doubles are 96 KiB.
const BLOCK: usize = 64;

#[derive(Debug, Clone)]
pub struct Matrix<T = f64> {
    /// Rows and columns.
    pub n: usize,
    /// Entry (row, column) at `row + column * n`.
    pub entries: Vec<T>,
}

impl<T: Number> Matrix<T> {
    /// A matrix whose entries are all 0.
    ///
    /// Fails when there is no memory for `n` times `n` entries.
    pub fn zero(n: usize) -> Result<Self, TryReserveError> {
        let count = n.saturating_mul(n);
        let mut entries = Vec::new();
        entries.try_reserve_exact(count)?;
        entries.resize(count, T::ZERO);
        Ok(Self { n, entries })
    }

    /// A matrix whose entries are uniform in [-0.5, 0.5).
    ///
    /// Fails when there is no memory for `n` times `n` entries.
    pub fn random(n: usize, random: &mut fastrand::Rng) -> Result<Self, TryReserveError> {
        let mut matrix = Self::zero(n)?;
        matrix.entries.fill_with(|| T::nearest(random.f64() - 0.5));
        Ok(matrix)
    }

    /// The product with a vector; the columns beyond its length do not count.
    fn times(&self, vector: &[f64]) -> Vec<f64> {
        self.product(vector, |entry| entry)
    }

    /// The product of the entries' absolute values with a vector.
    ///
    /// No copy of the matrix is made: under a memory limit, the copy would be what is measured.
    fn absolute_times(&self, vector: &[f64]) -> Vec<f64> {
        self.product(vector, f64::abs)
    }

    fn product(&self, vector: &[f64], of: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut product = vec![0.0; self.n];
        for (column, factor) in self.entries.chunks_exact(self.n).zip(vector) {
            for (sum, entry) in product.iter_mut().zip(column) {
                *sum += of((*entry).into()) * factor;
            }
        }
        product
    }
}

/// Compute c = a b, block by block.
///
/// The order of additions is fixed, so the same matrices give the same bits on every machine.
pub fn multiply(a: &Matrix, b: &Matrix, c: &mut Matrix) {
    c.entries.fill(0.0);
    let starts = || (0..a.n).step_by(BLOCK);
    for column in starts() {
        for inner in starts() {
            for row in starts() {
                multiply_block(a, b, c, [row, inner, column]);
            }
        }
    }
}

fn multiply_block(a: &Matrix, b: &Matrix, c: &mut Matrix, [row, inner, column]: [usize; 3]) {
    let n = a.n;
    let end = |start: usize| (start + BLOCK).min(n);
    for j in column..end(column) {
        let to = &mut c.entries[j * n + row..j * n + end(row)];
        for k in inner..end(inner) {
            let factor = b.entries[j * n + k];
            let from = &a.entries[k * n + row..k * n + end(row)];
            for (to, from) in to.iter_mut().zip(from) {
                *to += factor * from;
            }
        }
    }
}

/// Are the first `columns` of `c` those of the product of `a` and `b`?
///
/// Compares `c x` with `a (b x)` for a random vector `x` (Freivalds): n² operations, and a single
/// wrong entry of `c` shows. The bound is that of Higham, "Accuracy and Stability of Numerical
/// Algorithms", section 3.5, for any order of summation, doubled because there are two sides: 2 (2
/// n u) |a| |b| |x|.
pub fn is_product<T: Number>(
    a: &Matrix<T>,
    b: &Matrix<T>,
    c: &Matrix<T>,
    columns: usize,
    random: &mut fastrand::Rng,
) -> bool {
    // At least 0.5, so that no column of c is hidden.
    let x: Vec<f64> = (0..columns).map(|_| random.f64() + 0.5).collect();
    let direct = c.times(&x);
    let expected = a.times(&b.times(&x));
    let magnitude = a.absolute_times(&b.absolute_times(&x));
    let relative = 4.0 * cast::float(cast::count(c.n)) * T::EPSILON.into();
    // Written so that a NaN is not agreement.
    direct
        .iter()
        .zip(&expected)
        .zip(&magnitude)
        .all(|((direct, expected), magnitude)| (direct - expected).abs() <= relative * magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_recognised_and_one_wrong_entry_is_too() {
        let mut random = fastrand::Rng::with_seed(1);
        for n in [1, 2, 7, 64, 65, 100, 130] {
            let a = Matrix::random(n, &mut random).unwrap();
            let b = Matrix::random(n, &mut random).unwrap();
            let mut c = Matrix::zero(n).unwrap();
            multiply(&a, &b, &mut c);
            assert!(is_product(&a, &b, &c, n, &mut random), "{n}");
            for wrong in [1e-6, f64::NAN, f64::INFINITY] {
                let mut changed = c.clone();
                changed.entries[n * n / 2] += wrong;
                let columns = n / 2 + 1;
                assert!(
                    !is_product(&a, &b, &changed, columns, &mut random),
                    "{n} {wrong}"
                );
                // The wrong entry is in the column after these.
                assert!(is_product(&a, &b, &changed, n / 2, &mut random));
            }
        }
    }

    #[test]
    fn in_single_precision_the_bound_is_that_of_its_rounding() {
        let mut random = fastrand::Rng::with_seed(2);
        for n in [1, 7, 64, 130] {
            let a = Matrix::<f32>::random(n, &mut random).unwrap();
            let b = Matrix::<f32>::random(n, &mut random).unwrap();
            let wide = |it: &Matrix<f32>| Matrix {
                n,
                entries: it.entries.iter().copied().map(f64::from).collect(),
            };
            let mut exact = Matrix::zero(n).unwrap();
            multiply(&wide(&a), &wide(&b), &mut exact);
            let mut c = Matrix::<f32> {
                n,
                entries: exact.entries.iter().copied().map(cast::single).collect(),
            };
            assert!(is_product(&a, &b, &c, n, &mut random), "{n}");
            // Rounded to single precision it is no product of doubles.
            assert!(n == 1 || !is_product(&wide(&a), &wide(&b), &wide(&c), n, &mut random));
            c.entries[0] += 0.1;
            assert!(!is_product(&a, &b, &c, n, &mut random), "{n}");
        }
    }

    #[test]
    fn columns_lie_one_after_the_other() {
        let a = Matrix {
            n: 2,
            entries: vec![1.0, 2.0, 3.0, 4.0],
        };
        assert_eq!(a.times(&[1.0, 10.0]), [31.0, 42.0]);
        let mut c = Matrix::zero(2).unwrap();
        multiply(&a, &a, &mut c);
        assert_eq!(c.entries, [7.0, 10.0, 15.0, 22.0]);
    }

    #[test]
    fn a_matrix_that_cannot_be_is_an_error() {
        assert!(Matrix::<f64>::zero(usize::MAX).is_err());
        assert!(Matrix::<f64>::zero(1 << 31).is_err());
    }
}
