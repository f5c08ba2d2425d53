//! Instruction sets and precisions of kernels.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The instruction set of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vector {
    /// Rust code that the compiler translated; nothing is generated.
    Portable,
    /// One number at a time, in the registers of SSE2.
    Scalar,
    /// 16 bytes, two operands, no fused multiply-add.
    Sse2,
    /// 32 bytes, three operands; fused multiply-add where the processor has FMA.
    Avx2,
    /// 64 bytes and 32 registers.
    Avx512,
}

impl Vector {
    /// Bytes of one register; for scalar and portable code, of one number.
    pub fn bytes(self, precision: Precision) -> u32 {
        match self {
            Self::Portable | Self::Scalar => precision.bytes(),
            Self::Sse2 => 16,
            Self::Avx2 => 32,
            Self::Avx512 => 64,
        }
    }

    /// Numbers in one register.
    pub fn lanes(self, precision: Precision) -> u32 {
        self.bytes(precision) / precision.bytes()
    }

    /// Registers that instructions can name. Portable code is not limited to them.
    pub fn registers(self) -> u32 {
        match self {
            Self::Portable => 64,
            Self::Scalar | Self::Sse2 | Self::Avx2 => 16,
            Self::Avx512 => 32,
        }
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Portable => "portable",
            Self::Scalar => "scalar",
            Self::Sse2 => "sse2",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Precision {
    /// 8 bytes.
    #[serde(rename = "d")]
    Double,
    /// 4 bytes.
    #[serde(rename = "s")]
    Single,
}

impl Precision {
    pub fn bytes(self) -> u32 {
        match self {
            Self::Double => 8,
            Self::Single => 4,
        }
    }
}
