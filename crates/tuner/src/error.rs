//! Errors of this crate.

use nix::errno::Errno;

use crate::vector::Vector;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A parameter, named as in files, has an invalid value.
    #[error("{field} = {value}: {reason}")]
    Parameter {
        field: &'static str,
        value: String,
        /// What the value should be.
        reason: String,
    },
    /// The processor lacks these instructions, or the kernel has not switched them on.
    #[error("this processor has no {0}")]
    NoVector(Vector),
    /// A wrong argument of a routine, for which BLAS calls XERBLA.
    #[error("argument {number} ({name}): {reason}")]
    Argument {
        /// Its position, from 1, in the Fortran routine.
        number: u32,
        /// Its name in that routine.
        name: &'static str,
        reason: String,
    },
    /// An instruction could not be encoded: an error of the generator.
    #[error("cannot encode the kernel: {0}")]
    Encode(String),
    /// Memory for code or panels could not be allocated.
    #[error("cannot get memory for {what}: {}", .errno.desc())]
    Memory {
        /// What the memory was for.
        what: &'static str,
        errno: Errno,
    },
    /// A kernel computes a different result than the reference.
    #[error(
        "wrong result for {what}: {got:e} at row {row}, column {column}, not {want:e} (error bound {bound:e})"
    )]
    Wrong {
        /// The shape and the transpositions.
        what: String,
        /// Row of the entry, from 0.
        row: usize,
        /// Column of the entry, from 0.
        column: usize,
        /// The kernel's value.
        got: Value,
        /// The reference's value.
        want: Value,
        /// The largest allowed difference.
        bound: Value,
    },
}

/// A number in an error. It is compared by its bits, so that errors can be compared.
#[derive(Debug, Clone, Copy)]
pub struct Value(pub f64);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Value {}

impl std::fmt::LowerExp for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::LowerExp::fmt(&self.0, formatter)
    }
}
