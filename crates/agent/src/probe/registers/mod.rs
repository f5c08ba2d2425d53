//! Chains of instructions in registers: written in assembly, so that nothing else is measured.
//!
//! Every accumulator is an independent chain: each instruction waits for the one before it in the
//! same register, and for no other. One more register holds the second operand, 1.0, so that values
//! stay small and normal numbers.

#![allow(unsafe_code)]

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;

pub use arch::{OPERANDS, SPILLS, adds, has, kernel, spilling};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Add,
    Multiply,
    /// A multiplication and an addition in one instruction.
    Fma,
    /// A multiplication and an addition, one after the other in the same chain.
    MultiplyAdd,
    /// Chains of multiplications beside chains of additions.
    Both,
}

/// How many doubles one instruction works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "arm64 has the first two only")]
pub enum Width {
    /// One.
    Scalar,
    /// Two: SSE2 or Advanced SIMD.
    Bits128,
    /// Four: AVX, with AVX2 for fused operations.
    Bits256,
    /// Eight: AVX-512.
    Bits512,
}

impl Width {
    /// Doubles in one register.
    pub fn lanes(self) -> u32 {
        match self {
            Self::Scalar => 1,
            Self::Bits128 => 2,
            Self::Bits256 => 4,
            Self::Bits512 => 8,
        }
    }
}

/// Instructions of each chain in one round.
pub const UNROLL: u32 = 4;
/// Integer additions in one round of [`adds`].
pub const ADDS: u32 = 64;
/// Chains for a throughput: the largest even number that the registers allow. Most processors have
/// fewer instructions in flight (Golden Cove and Zen 4: two pipes of four cycles); one with four
/// pipes of four cycles (Neoverse V1) shows seven eighths of its throughput.
pub const MANY: usize = 14;

/// Runs this many rounds.
pub type Rounds = fn(u64);

impl Operation {
    /// Floating-point operations on one double that an instruction counts for.
    pub fn flops(self) -> u32 {
        match self {
            Self::Fma => 2,
            Self::Add | Self::Multiply | Self::MultiplyAdd | Self::Both => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel ends, and leaves the machine's registers as the compiler expects them.
    #[test]
    fn every_kernel_runs() {
        let sum: f64 = (0..100).map(f64::from).sum();
        let operations = [
            Operation::Add,
            Operation::Multiply,
            Operation::Fma,
            Operation::MultiplyAdd,
            Operation::Both,
        ];
        let widths = [
            Width::Scalar,
            Width::Bits128,
            Width::Bits256,
            Width::Bits512,
        ];
        let mut ran = 0;
        for width in widths {
            for operation in operations {
                for chains in 1..=16 {
                    if let Some(run) = kernel(operation, width, chains) {
                        run(3);
                        ran += 1;
                    }
                }
            }
        }
        // Two chains of additions, two of multiplications, 15 of both in turn, one of both side by
        // side.
        assert!(ran >= 20, "{ran}");
        adds(3);
        for count in SPILLS {
            spilling(*count).unwrap()(3);
        }
        let again: f64 = (0..100).map(f64::from).sum();
        assert_eq!(sum.to_bits(), again.to_bits());
    }

    #[test]
    fn what_is_not_there_is_not_offered() {
        assert!(kernel(Operation::Add, Width::Scalar, 0).is_none());
        assert!(kernel(Operation::Add, Width::Scalar, 16).is_none());
        assert!(spilling(1).is_none());
        if !has(Width::Bits512) {
            assert!(kernel(Operation::Fma, Width::Bits512, MANY).is_none());
        }
    }
}
