//! The kernel of GEMM in Rust, for processors without generated code.

use crate::element::Element;

/// Compute the sums of one block of C: `tile[column * mu + row]` = the product of two packed
/// panels.
pub fn multiply<T: Element>(muladd: bool, shape: (usize, usize), a: &[T], b: &[T], tile: &mut [T]) {
    let kernel = match shape {
        (2, 2) => block::<T, 2, 2>,
        (4, 1) => block::<T, 4, 1>,
        (4, 2) => block::<T, 4, 2>,
        (4, 4) => block::<T, 4, 4>,
        (4, 8) => block::<T, 4, 8>,
        (8, 2) => block::<T, 8, 2>,
        (8, 4) => block::<T, 8, 4>,
        (8, 6) => block::<T, 8, 6>,
        (8, 8) => block::<T, 8, 8>,
        (16, 4) => block::<T, 16, 4>,
        _ => return any(muladd, shape, a, b, tile),
    };
    kernel(muladd, a, b, tile);
}

/// With a constant shape, the compiler keeps the sums in vector registers.
fn block<T: Element, const MU: usize, const NU: usize>(
    muladd: bool,
    a: &[T],
    b: &[T],
    tile: &mut [T],
) {
    let mut sums = [[T::ZERO; MU]; NU];
    let (columns, _) = a.as_chunks::<MU>();
    let (rows, _) = b.as_chunks::<NU>();
    for (column, row) in columns.iter().zip(rows) {
        for (sums, b) in sums.iter_mut().zip(row) {
            for (sum, a) in sums.iter_mut().zip(column) {
                *sum = accumulate(muladd, *a, *b, *sum);
            }
        }
    }
    for (to, from) in tile.iter_mut().zip(sums.as_flattened()) {
        *to = *from;
    }
}

fn any<T: Element>(muladd: bool, (mu, nu): (usize, usize), a: &[T], b: &[T], tile: &mut [T]) {
    tile.fill(T::ZERO);
    for (column, row) in a.chunks_exact(mu).zip(b.chunks_exact(nu)) {
        for (sums, b) in tile.chunks_exact_mut(mu).zip(row) {
            for (sum, a) in sums.iter_mut().zip(column) {
                *sum = accumulate(muladd, *a, *b, *sum);
            }
        }
    }
}

#[inline]
fn accumulate<T: Element>(muladd: bool, a: T, b: T, sum: T) -> T {
    if muladd { a.fused(b, sum) } else { a * b + sum }
}
