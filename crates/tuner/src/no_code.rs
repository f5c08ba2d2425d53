//! For processors without generated code: their kernels are written in Rust.

use crate::error::Error;
use crate::parameters::{Level2, Parameters};
use crate::unsafe_columns::Routine;
use crate::vector::Precision;

/// Always fails: there is no generated code.
pub fn gemm(parameters: &Parameters, _: Precision, _copies: u32) -> Result<Vec<u8>, Error> {
    Err(Error::NoVector(parameters.vector))
}

/// Always fails: there is no generated code.
pub fn level2(
    _: Routine,
    parameters: &Level2,
    _: Precision,
    _columns: (u32, bool),
) -> Result<Vec<u8>, Error> {
    Err(Error::NoVector(parameters.vector))
}
