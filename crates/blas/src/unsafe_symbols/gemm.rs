//! GEMM.

use std::ffi::{c_char, c_int};

use vtax_tuner::{Matrix, MatrixMut, Problem};

use crate::arguments::{GemmArguments, Position, transposed};
use crate::kernels::{self, Number};
use crate::layout::{self, EXCHANGED_GEMM, Layout};
use crate::unsafe_symbols::{Wrong, first, numbers, numbers_mut, xerbla};

macro_rules! gemm {
    ($number:ty, $name:expr, $fortran:ident, $c:ident) => {
        /// GEMM as Fortran calls it; the lengths of the two letters, the last arguments, are not
        /// read.
        ///
        /// # Safety
        /// As for the reference BLAS: each pointer points to one value, and A, B and C to matrices
        /// of the given sizes; nothing else uses C during the call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $fortran(
            transpose_a: *const c_char,
            transpose_b: *const c_char,
            m: *const c_int,
            n: *const c_int,
            k: *const c_int,
            alpha: *const $number,
            a: *const $number,
            lda: *const c_int,
            b: *const $number,
            ldb: *const c_int,
            beta: *const $number,
            c: *mut $number,
            ldc: *const c_int,
        ) {
            // SAFETY: the caller's pointers point to values.
            let (arguments, operands) = unsafe {
                let letters = [first(transpose_a), first(transpose_b)];
                let arguments = GemmArguments {
                    transposed: letters.map(transposed),
                    sizes: [*m, *n, *k],
                    leading: [*lda, *ldb, *ldc],
                };
                (
                    arguments,
                    Operands {
                        alpha: *alpha,
                        a,
                        b,
                        beta: *beta,
                        c,
                    },
                )
            };
            // SAFETY: the caller guarantees these sizes of the matrices.
            if let Err(position) = unsafe { gemm(arguments, operands) } {
                xerbla::fortran($name, position);
            }
        }

        /// GEMM as C calls it.
        ///
        /// # Safety
        /// As for the reference CBLAS: A, B and C point to matrices of the given sizes; nothing
        /// else uses C during the call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $c(
            layout: c_int,
            transpose_a: c_int,
            transpose_b: c_int,
            m: c_int,
            n: c_int,
            k: c_int,
            alpha: $number,
            a: *const $number,
            lda: c_int,
            b: *const $number,
            ldb: c_int,
            beta: $number,
            c: *mut $number,
            ldc: c_int,
        ) {
            let settings = (layout, transpose_a, transpose_b);
            let (sizes, leading) = ([m, n, k], [lda, ldb, ldc]);
            let operands = Operands {
                alpha,
                a,
                b,
                beta,
                c,
            };
            // SAFETY: the caller guarantees these sizes of the matrices.
            let done = unsafe { c_gemm(settings, sizes, leading, operands) };
            if let Err((position, layout)) = done {
                xerbla::c(stringify!($c), position, layout, EXCHANGED_GEMM);
            }
        }
    };
}

gemm!(f64, c"DGEMM ", dgemm_, cblas_dgemm);
gemm!(f32, c"SGEMM ", sgemm_, cblas_sgemm);

/// The numbers of a product's matrices.
struct Operands<T> {
    alpha: T,
    a: *const T,
    b: *const T,
    beta: T,
    c: *mut T,
}

/// # Safety
/// As for the functions that call it.
unsafe fn c_gemm<T: Number>(
    (layout, transpose_a, transpose_b): (c_int, c_int, c_int),
    sizes: [c_int; 3],
    leading: [c_int; 3],
    mut operands: Operands<T>,
) -> Result<(), Wrong> {
    let layout = layout::layout(layout).map_err(|position| (position, Layout::Columns))?;
    let wrong = |position| (position, layout);
    let transpose_a = layout::transposed(transpose_a, 2).map_err(wrong)?;
    let transpose_b = layout::transposed(transpose_b, 3).map_err(wrong)?;
    let mut arguments = GemmArguments {
        transposed: [Some(transpose_a), Some(transpose_b)],
        sizes,
        leading,
    };
    if layout == Layout::Rows {
        arguments = layout::exchange_gemm(arguments);
        (operands.a, operands.b) = (operands.b, operands.a);
    }
    // SAFETY: the caller guarantees it.
    unsafe { gemm(arguments, operands) }
        .map_err(|position| wrong(layout::position(position, layout, EXCHANGED_GEMM)))
}

/// # Safety
/// As for the functions that call it.
unsafe fn gemm<T: Number>(arguments: GemmArguments, operands: Operands<T>) -> Result<(), Position> {
    let shape = arguments.check()?;
    let Operands {
        alpha,
        a,
        b,
        beta,
        c,
    } = operands;
    let product = shape.k > 0 && alpha != T::ZERO;
    if shape.c.numbers() == 0 || (!product && beta == T::ONE) {
        return Ok(());
    }
    let [a, b] = [(a, shape.a), (b, shape.b)].map(|(start, stored)| Matrix {
        // SAFETY: the caller guarantees these sizes of the matrices.
        data: unsafe { numbers(start, stored.numbers(), product) },
        leading: stored.leading,
    });
    let problem = Problem {
        transpose_a: shape.transposed[0],
        transpose_b: shape.transposed[1],
        m: shape.c.rows,
        n: shape.c.columns,
        k: shape.k,
        alpha,
        beta,
        a,
        b,
    };
    // SAFETY: the caller guarantees the size of C too.
    let data = unsafe { numbers_mut(c, shape.c.numbers()) };
    let leading = shape.c.leading;
    kernels::gemm(&problem, MatrixMut { data, leading });
    Ok(())
}
