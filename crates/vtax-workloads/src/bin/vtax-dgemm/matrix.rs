//! Square matrices stored by columns, as in Fortran.

use anyhow::{Result, anyhow};

#[derive(Debug, Clone)]
pub struct Matrix {
    /// Rows and columns.
    pub n: usize,
    /// Entry (row, column) at `row + column * n`.
    pub entries: Vec<f64>,
}

impl Matrix {
    /// A matrix whose entries are all 0.
    ///
    /// Fails when there is no memory for `n` times `n` entries.
    pub fn zero(n: usize) -> Result<Self> {
        let mut entries = Vec::new();
        let count = n
            .checked_mul(n)
            .ok_or_else(|| anyhow!("size {n} is too large"))?;
        entries
            .try_reserve_exact(count)
            .map_err(|_| anyhow!("no memory for a matrix of {n} rows; use a smaller --size"))?;
        entries.resize(count, 0.0);
        Ok(Self { n, entries })
    }

    /// A matrix whose entries are uniform in [-0.5, 0.5).
    ///
    /// Fails when there is no memory for `n` times `n` entries.
    pub fn random(n: usize, random: &mut fastrand::Rng) -> Result<Self> {
        let mut matrix = Self::zero(n)?;
        matrix.entries.fill_with(|| random.f64() - 0.5);
        Ok(matrix)
    }

    /// The product with a vector of `n` entries.
    pub fn times(&self, vector: &[f64]) -> Vec<f64> {
        self.product(vector, |entry| entry)
    }

    /// The product of the entries' absolute values with a vector.
    ///
    /// No copy of the matrix is made: under a memory limit, the copy would be what is measured.
    pub fn absolute_times(&self, vector: &[f64]) -> Vec<f64> {
        self.product(vector, f64::abs)
    }

    fn product(&self, vector: &[f64], of: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut product = vec![0.0; self.n];
        for (column, factor) in self.entries.chunks_exact(self.n).zip(vector) {
            for (sum, entry) in product.iter_mut().zip(column) {
                *sum += of(*entry) * factor;
            }
        }
        product
    }
}

/// Is `c` the product of `a` and `b`?
///
/// Compares `c x` with `a (b x)` for a random vector `x`: n² operations, and a single wrong entry
/// of `c` shows. The bound is that of Higham, "Accuracy and Stability of Numerical Algorithms",
/// section 3.5, for any order of summation, doubled because there are two sides: 2 (2 n u) |a| |b|
/// |x|.
pub fn is_product(a: &Matrix, b: &Matrix, c: &Matrix, random: &mut fastrand::Rng) -> bool {
    // At least 0.5, so that no column of c is hidden.
    let x: Vec<f64> = (0..c.n).map(|_| random.f64() + 0.5).collect();
    let direct = c.times(&x);
    let expected = a.times(&b.times(&x));
    let magnitude = a.absolute_times(&b.absolute_times(&x));
    #[allow(clippy::cast_precision_loss, reason = "n is below 2^16")]
    let relative = 4.0 * c.n as f64 * f64::EPSILON;
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

    fn plain_product(a: &Matrix, b: &Matrix) -> Matrix {
        let mut c = Matrix::zero(a.n).unwrap();
        for (to, from) in c
            .entries
            .chunks_exact_mut(a.n)
            .zip(b.entries.chunks_exact(a.n))
        {
            to.copy_from_slice(&a.times(from));
        }
        c
    }

    #[test]
    fn a_product_is_recognised_and_one_wrong_entry_is_too() {
        let mut random = fastrand::Rng::with_seed(1);
        for n in [1, 2, 7, 100] {
            let a = Matrix::random(n, &mut random).unwrap();
            let b = Matrix::random(n, &mut random).unwrap();
            let c = plain_product(&a, &b);
            assert!(is_product(&a, &b, &c, &mut random), "{n}");
            for wrong in [1e-6, f64::NAN, f64::INFINITY] {
                let mut changed = c.clone();
                changed.entries[n * n / 2] += wrong;
                assert!(!is_product(&a, &b, &changed, &mut random), "{n} {wrong}");
            }
        }
    }

    #[test]
    fn columns_lie_one_after_the_other() {
        let matrix = Matrix {
            n: 2,
            entries: vec![1.0, 2.0, 3.0, 4.0],
        };
        assert_eq!(matrix.times(&[1.0, 10.0]), [31.0, 42.0]);
    }

    #[test]
    fn a_matrix_that_cannot_be_is_an_error() {
        assert!(Matrix::zero(usize::MAX).is_err());
        assert!(Matrix::zero(1 << 31).is_err());
    }
}
