//! The symbols, as Fortran and as C call them: everything that reads the callers' pointers.

#![allow(unsafe_code)]
#![allow(
    clippy::too_many_arguments,
    clippy::many_single_char_names,
    reason = "the signatures are those of the reference BLAS"
)]

mod gemm;
mod gemv;
mod ger;
#[cfg(test)]
mod tests;
mod xerbla;

pub use gemm::{cblas_dgemm, cblas_sgemm, dgemm_, sgemm_};
pub use gemv::{cblas_dgemv, cblas_sgemv, dgemv_, sgemv_};
pub use ger::{cblas_dger, cblas_sger, dger_, sger_};

use std::ffi::c_char;
use std::slice;

use crate::arguments::Position;
use crate::layout::Layout;

/// A wrong argument of a C function.
type Wrong = (Position, Layout);

/// What does not count is not looked at, and need not be there.
///
/// # Safety
/// `start` is to so many numbers, if they count, and nobody changes them meanwhile.
unsafe fn numbers<'a, T>(start: *const T, count: usize, counts: bool) -> &'a [T] {
    if !counts {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(start, count) }
}

/// Beside the numbers of one argument there may be those of others, as in LU factorisation, where
/// all are parts of one matrix. Between the columns, or between a vector's numbers, nothing is
/// read or written.
///
/// # Safety
/// `start` is to so many numbers, and nobody uses those of the argument meanwhile.
unsafe fn numbers_mut<'a, T>(start: *mut T, count: usize) -> &'a mut [T] {
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts_mut(start, count) }
}

/// The first letter of a text.
///
/// # Safety
/// There is one.
unsafe fn first(text: *const c_char) -> u8 {
    // SAFETY: the caller's.
    unsafe { *text.cast() }
}
