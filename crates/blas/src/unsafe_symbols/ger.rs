//! GER.

use std::ffi::c_int;

use vtax_tuner::{GerProblem, MatrixMut, Strided};

use crate::arguments::{GerArguments, Position};
use crate::kernels::{self, Number};
use crate::layout::{self, EXCHANGED_GER, Layout};
use crate::unsafe_symbols::{Wrong, numbers, numbers_mut, xerbla};

macro_rules! ger {
    ($number:ty, $name:expr, $fortran:ident, $c:ident) => {
        /// GER as Fortran calls it.
        ///
        /// # Safety
        /// As for the reference BLAS: each pointer points to one value, and A, x and y have the
        /// given sizes; nothing else uses A during the call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $fortran(
            m: *const c_int,
            n: *const c_int,
            alpha: *const $number,
            x: *const $number,
            incx: *const c_int,
            y: *const $number,
            incy: *const c_int,
            a: *mut $number,
            lda: *const c_int,
        ) {
            // SAFETY: the caller's pointers point to values.
            let (arguments, operands) = unsafe {
                let arguments = GerArguments {
                    sizes: [*m, *n],
                    increments: [*incx, *incy],
                    leading: *lda,
                };
                (
                    arguments,
                    Operands {
                        alpha: *alpha,
                        x,
                        y,
                        a,
                    },
                )
            };
            // SAFETY: the caller guarantees these sizes of the operands.
            if let Err(position) = unsafe { ger(&arguments, operands) } {
                xerbla::fortran($name, position);
            }
        }

        /// GER as C calls it.
        ///
        /// # Safety
        /// As for the reference CBLAS: A, x and y have the given sizes; nothing else uses A during
        /// the call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $c(
            layout: c_int,
            m: c_int,
            n: c_int,
            alpha: $number,
            x: *const $number,
            incx: c_int,
            y: *const $number,
            incy: c_int,
            a: *mut $number,
            lda: c_int,
        ) {
            let arguments = GerArguments {
                sizes: [m, n],
                increments: [incx, incy],
                leading: lda,
            };
            let operands = Operands { alpha, x, y, a };
            // SAFETY: the caller guarantees these sizes of the operands.
            let done = unsafe { c_ger(layout, arguments, operands) };
            if let Err((position, layout)) = done {
                xerbla::c(stringify!($c), position, layout, EXCHANGED_GER);
            }
        }
    };
}

ger!(f64, c"DGER  ", dger_, cblas_dger);
ger!(f32, c"SGER  ", sger_, cblas_sger);

struct Operands<T> {
    alpha: T,
    x: *const T,
    y: *const T,
    a: *mut T,
}

/// # Safety
/// As for the functions that call it.
unsafe fn c_ger<T: Number>(
    layout: c_int,
    mut arguments: GerArguments,
    mut operands: Operands<T>,
) -> Result<(), Wrong> {
    let layout = layout::layout(layout).map_err(|position| (position, Layout::Columns))?;
    if layout == Layout::Rows {
        arguments = layout::exchange_ger(arguments);
        (operands.x, operands.y) = (operands.y, operands.x);
    }
    // SAFETY: the caller guarantees it.
    unsafe { ger(&arguments, operands) }
        .map_err(|position| (layout::position(position, layout, EXCHANGED_GER), layout))
}

/// # Safety
/// As for the functions that call it.
unsafe fn ger<T: Number>(arguments: &GerArguments, operands: Operands<T>) -> Result<(), Position> {
    let shape = arguments.check()?;
    let Operands { alpha, x, y, a } = operands;
    if shape.a.numbers() == 0 || alpha == T::ZERO {
        return Ok(());
    }
    // SAFETY: the caller guarantees these sizes of the vectors.
    let [x, y] = unsafe {
        [(x, shape.x), (y, shape.y)].map(|(start, vector)| Strided {
            data: numbers(start, vector.numbers(), true),
            increment: vector.increment,
        })
    };
    let (m, n, leading) = (shape.a.rows, shape.a.columns, shape.a.leading);
    // SAFETY: the caller guarantees this size of A.
    let data = unsafe { numbers_mut(a, shape.a.numbers()) };
    kernels::ger(
        &GerProblem { m, n, alpha, x, y },
        MatrixMut { data, leading },
    );
    Ok(())
}
