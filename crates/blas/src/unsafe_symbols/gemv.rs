//! GEMV.

use std::ffi::{c_char, c_int};

use vtax_tuner::{GemvProblem, Matrix, Strided, StridedMut};

use crate::arguments::{GemvArguments, Position, transposed};
use crate::kernels::{self, Number};
use crate::layout::{self, EXCHANGED_GEMV, Layout};
use crate::unsafe_symbols::{Wrong, first, numbers, numbers_mut, xerbla};

macro_rules! gemv {
    ($number:ty, $name:expr, $fortran:ident, $c:ident) => {
        /// GEMV as Fortran calls it; the length of the letter, the last argument, is not read.
        ///
        /// # Safety
        /// As for the reference BLAS: each pointer points to one value, and A, x and y have the
        /// given sizes; nothing else uses y during the call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $fortran(
            transpose: *const c_char,
            m: *const c_int,
            n: *const c_int,
            alpha: *const $number,
            a: *const $number,
            lda: *const c_int,
            x: *const $number,
            incx: *const c_int,
            beta: *const $number,
            y: *mut $number,
            incy: *const c_int,
        ) {
            // SAFETY: the caller's pointers point to values.
            let (arguments, operands) = unsafe {
                let arguments = GemvArguments {
                    transposed: transposed(first(transpose)),
                    sizes: [*m, *n],
                    leading: *lda,
                    increments: [*incx, *incy],
                };
                (
                    arguments,
                    Operands {
                        alpha: *alpha,
                        a,
                        x,
                        beta: *beta,
                        y,
                    },
                )
            };
            // SAFETY: the caller guarantees these sizes of the operands.
            if let Err(position) = unsafe { gemv(&arguments, operands) } {
                xerbla::fortran($name, position);
            }
        }

        /// GEMV as C calls it.
        ///
        /// # Safety
        /// As for the reference CBLAS: A, x and y have the given sizes; nothing else uses y during
        /// the call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $c(
            layout: c_int,
            transpose: c_int,
            m: c_int,
            n: c_int,
            alpha: $number,
            a: *const $number,
            lda: c_int,
            x: *const $number,
            incx: c_int,
            beta: $number,
            y: *mut $number,
            incy: c_int,
        ) {
            let arguments = GemvArguments {
                transposed: None,
                sizes: [m, n],
                leading: lda,
                increments: [incx, incy],
            };
            let operands = Operands {
                alpha,
                a,
                x,
                beta,
                y,
            };
            // SAFETY: the caller guarantees these sizes of the operands.
            let done = unsafe { c_gemv(layout, transpose, arguments, operands) };
            if let Err((position, layout)) = done {
                xerbla::c(stringify!($c), position, layout, EXCHANGED_GEMV);
            }
        }
    };
}

gemv!(f64, c"DGEMV ", dgemv_, cblas_dgemv);
gemv!(f32, c"SGEMV ", sgemv_, cblas_sgemv);

struct Operands<T> {
    alpha: T,
    a: *const T,
    x: *const T,
    beta: T,
    y: *mut T,
}

/// # Safety
/// As for the functions that call it.
unsafe fn c_gemv<T: Number>(
    layout: c_int,
    transpose: c_int,
    mut arguments: GemvArguments,
    operands: Operands<T>,
) -> Result<(), Wrong> {
    let layout = layout::layout(layout).map_err(|position| (position, Layout::Columns))?;
    let wrong = |position| (position, layout);
    arguments.transposed = Some(layout::transposed(transpose, 2).map_err(wrong)?);
    if layout == Layout::Rows {
        arguments = layout::exchange_gemv(arguments);
    }
    // SAFETY: the caller guarantees it.
    unsafe { gemv(&arguments, operands) }
        .map_err(|position| wrong(layout::position(position, layout, EXCHANGED_GEMV)))
}

/// # Safety
/// As for the functions that call it.
unsafe fn gemv<T: Number>(
    arguments: &GemvArguments,
    operands: Operands<T>,
) -> Result<(), Position> {
    let shape = arguments.check()?;
    let Operands {
        alpha,
        a,
        x,
        beta,
        y,
    } = operands;
    let product = alpha != T::ZERO;
    if shape.a.numbers() == 0 || (!product && beta == T::ONE) {
        return Ok(());
    }
    let problem = GemvProblem {
        transpose: shape.transposed,
        m: shape.a.rows,
        n: shape.a.columns,
        alpha,
        beta,
        a: Matrix {
            // SAFETY: the caller guarantees this size of A.
            data: unsafe { numbers(a, shape.a.numbers(), product) },
            leading: shape.a.leading,
        },
        x: Strided {
            // SAFETY: the caller guarantees this size of x.
            data: unsafe { numbers(x, shape.x.numbers(), product) },
            increment: shape.x.increment,
        },
    };
    let y = StridedMut {
        // SAFETY: the caller guarantees this size of y.
        data: unsafe { numbers_mut(y, shape.y.numbers()) },
        increment: shape.y.increment,
    };
    kernels::gemv(&problem, y);
    Ok(())
}
