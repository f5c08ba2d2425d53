//! What can go wrong.

use nix::errno::Errno;

use crate::parameters::Vector;

/// Errors of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A parameter, named as in files, cannot be what it is.
    #[error("{field} = {value}: {reason}")]
    Parameter {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        reason: String,
    },
    /// The processor has no such instructions, or the kernel has not switched them on.
    #[error("this processor has no {0}")]
    NoVector(Vector),
    /// An argument of a routine: what BLAS's XERBLA is called for.
    #[error("argument {number} ({name}): {reason}")]
    Argument {
        /// Its position, from 1, in the Fortran routine.
        number: u32,
        /// Its name there.
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// An instruction could not be encoded: an error of the generator.
    #[error("cannot encode the kernel: {0}")]
    Encode(String),
    /// Memory for code or panels could not be had.
    #[error("cannot get memory for {what}: {}", .errno.desc())]
    Memory {
        /// What for.
        what: &'static str,
        /// The system call's answer.
        errno: Errno,
    },
    /// A kernel computes something else than the reference.
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
        /// How far apart they may be.
        bound: Value,
    },
}

/// A number in an error: compared by its bits, so that errors are comparable.
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
