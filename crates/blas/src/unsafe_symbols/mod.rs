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

/// The numbers at a pointer. Where they do not count, the pointer is not read, and need not be
/// valid.
///
/// # Safety
/// If the numbers count, `start` points to that many, and nothing changes them during the call.
unsafe fn numbers<'a, T>(start: *const T, count: usize, counts: bool) -> &'a [T] {
    if !counts {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { slice::from_raw_parts(start, count) }
}

/// The numbers at a pointer, for writing. Between the numbers of one argument there may be those of
/// others, as in LU factorisation, where all are parts of one matrix. Nothing is read or written
/// between the columns, or between a vector's numbers.
///
/// # Safety
/// `start` points to that many numbers, and nothing else uses those of the argument during the
/// call.
unsafe fn numbers_mut<'a, T>(start: *mut T, count: usize) -> &'a mut [T] {
    // SAFETY: the caller guarantees it.
    unsafe { slice::from_raw_parts_mut(start, count) }
}

/// The first letter of a text.
///
/// # Safety
/// The text has a first letter.
unsafe fn first(text: *const c_char) -> u8 {
    // SAFETY: the caller guarantees it.
    unsafe { *text.cast() }
}
