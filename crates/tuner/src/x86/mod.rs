//! Machine code for x86-64, in the calling convention of System V.

mod gemm;
mod level2;
mod set;

pub use gemm::gemm;
pub use level2::level2;

use iced_x86::{IcedError, MemoryOperand, Register};

use crate::error::Error;

impl From<IcedError> for Error {
    fn from(error: IcedError) -> Self {
        Self::Encode(error.to_string())
    }
}

fn at(base: Register, displacement: i64) -> MemoryOperand {
    MemoryOperand::with_base_displ(base, displacement)
}

/// An immediate for `add` and `sub` of an integer register.
fn immediate(value: i64) -> Result<i32, Error> {
    i32::try_from(value).map_err(|_| Error::Encode(format!("{value} does not fit")))
}
