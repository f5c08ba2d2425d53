//! GEMM without kernels: for products that are smaller than a kernel's block, and where there is no
//! memory for packed panels or code.

use vtax_tuner::{Element, MatrixMut, Problem};

/// C = alpha op(A) op(B) + beta C, one column of C at a time. The arguments have been checked.
pub fn gemm<T: Element>(problem: &Problem<'_, T>, c: MatrixMut<'_, T>) {
    let Problem { alpha, beta, .. } = *problem;
    let steps = if alpha == T::ZERO { 0 } else { problem.k };
    for (j, column) in c.data.chunks_mut(c.leading).take(problem.n).enumerate() {
        let column = &mut column[..problem.m];
        if beta == T::ZERO {
            column.fill(T::ZERO);
        } else if beta != T::ONE {
            for number in &mut *column {
                *number = *number * beta;
            }
        }
        for step in 0..steps {
            let factor = alpha
                * entry(
                    problem.b.data,
                    problem.b.leading,
                    problem.transpose_b,
                    step,
                    j,
                );
            if problem.transpose_a {
                let a = problem.a.data[step..].iter().step_by(problem.a.leading);
                add(column, a, factor);
            } else {
                add(
                    column,
                    problem.a.data[step * problem.a.leading..].iter(),
                    factor,
                );
            }
        }
    }
}

fn add<'a, T: Element>(column: &mut [T], a: impl Iterator<Item = &'a T>, factor: T) {
    for (c, a) in column.iter_mut().zip(a) {
        *c += *a * factor;
    }
}

fn entry<T: Element>(data: &[T], leading: usize, transposed: bool, row: usize, column: usize) -> T {
    let (row, column) = if transposed {
        (column, row)
    } else {
        (row, column)
    };
    data[column * leading + row]
}
