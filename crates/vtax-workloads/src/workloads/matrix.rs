//! Square matrices stored by rows, their product, and a check of a product.

use crate::cast;

/// Rows of a block: three blocks of 64 times 64 doubles are 96 KiB.
const BLOCK: usize = 64;

#[derive(Debug, Clone)]
pub struct Matrix {
    /// Rows and columns.
    pub n: usize,
    /// Entry (row, column) at `row * n + column`.
    pub entries: Vec<f64>,
}

impl Matrix {
    /// A matrix whose entries are all 0.
    pub fn zero(n: usize) -> Self {
        Self {
            n,
            entries: vec![0.0; n * n],
        }
    }

    /// A matrix whose entries are uniform in [-0.5, 0.5).
    pub fn random(n: usize, random: &mut fastrand::Rng) -> Self {
        let mut matrix = Self::zero(n);
        matrix.entries.fill_with(|| random.f64() - 0.5);
        matrix
    }

    fn times(&self, vector: &[f64]) -> Vec<f64> {
        let dot = |row: &[f64]| row.iter().zip(vector).map(|(a, b)| a * b).sum();
        self.entries.chunks_exact(self.n).map(dot).collect()
    }

    fn absolute(&self) -> Self {
        Self {
            n: self.n,
            entries: self.entries.iter().map(|entry| entry.abs()).collect(),
        }
    }
}

/// Compute c = a b, block by block.
///
/// The order of additions is fixed, so the same matrices give the same bits on every machine.
pub fn multiply(a: &Matrix, b: &Matrix, c: &mut Matrix) {
    c.entries.fill(0.0);
    let starts = || (0..a.n).step_by(BLOCK);
    for row in starts() {
        for inner in starts() {
            for column in starts() {
                multiply_block(a, b, c, [row, inner, column]);
            }
        }
    }
}

fn multiply_block(a: &Matrix, b: &Matrix, c: &mut Matrix, [row, inner, column]: [usize; 3]) {
    let n = a.n;
    let end = |start: usize| (start + BLOCK).min(n);
    for i in row..end(row) {
        let to = &mut c.entries[i * n + column..i * n + end(column)];
        for k in inner..end(inner) {
            let factor = a.entries[i * n + k];
            let from = &b.entries[k * n + column..k * n + end(column)];
            for (to, from) in to.iter_mut().zip(from) {
                *to += factor * from;
            }
        }
    }
}

/// Is `c` the product of `a` and `b`?
///
/// Compares `c x` with `a (b x)` for a random vector `x` (Freivalds): n² operations, and a single
/// wrong entry of `c` shows. The bound is that of Higham, "Accuracy and Stability of Numerical
/// Algorithms", section 3.5, for any order of summation, doubled because there are two sides: 2 (2
/// n u) |a| |b| |x|.
pub fn is_product(a: &Matrix, b: &Matrix, c: &Matrix, random: &mut fastrand::Rng) -> bool {
    // At least 0.5, so that no column of c is hidden.
    let x: Vec<f64> = (0..c.n).map(|_| random.f64() + 0.5).collect();
    let direct = c.times(&x);
    let expected = a.times(&b.times(&x));
    let magnitude = a.absolute().times(&b.absolute().times(&x));
    let relative = 4.0 * cast::float(cast::count(c.n)) * f64::EPSILON;
    let rows = direct.iter().zip(&expected).zip(&magnitude);
    // Written so that a NaN is not agreement.
    rows.into_iter()
        .all(|((direct, expected), magnitude)| (direct - expected).abs() <= relative * magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_recognised_and_one_wrong_entry_is_too() {
        let mut random = fastrand::Rng::with_seed(1);
        for n in [1, 2, 7, 64, 65, 130] {
            let a = Matrix::random(n, &mut random);
            let b = Matrix::random(n, &mut random);
            let mut c = Matrix::zero(n);
            multiply(&a, &b, &mut c);
            assert!(is_product(&a, &b, &c, &mut random), "{n}");
            for wrong in [1e-6, f64::NAN, f64::INFINITY] {
                let mut changed = c.clone();
                changed.entries[n * n / 2] += wrong;
                assert!(!is_product(&a, &b, &changed, &mut random), "{n} {wrong}");
            }
        }
    }

    #[test]
    fn rows_lie_one_after_the_other() {
        let a = Matrix {
            n: 2,
            entries: vec![1.0, 2.0, 3.0, 4.0],
        };
        let mut c = Matrix::zero(2);
        multiply(&a, &a, &mut c);
        assert_eq!(c.entries, [7.0, 10.0, 15.0, 22.0]);
    }
}
