//! Doubles in the registers of Advanced SIMD.

use std::arch::asm;

use super::{Operation, Rounds, Width};

static ONES: [f64; 2] = [1.0; 2];

/// Registers besides the accumulators: one, for the second operand.
pub const OPERANDS: u32 = 1;

/// Numbers of accumulators that [`spilling`] has: none, because there is no spilling code for
/// arm64.
pub const SPILLS: &[usize] = &[];

/// Advanced SIMD is in every processor that Linux runs on.
pub fn has(width: Width) -> bool {
    matches!(width, Width::Scalar | Width::Bits128)
}

/// Dependent additions of integers, one cycle each: 64 in a round.
pub fn adds(rounds: u64) {
    // SAFETY: only the named registers are changed.
    unsafe {
        asm!(
            "2:",
            ".rept 64", "add {sum}, {sum}, {one}", ".endr",
            "subs {rounds}, {rounds}, #1", "b.ne 2b",
            sum = inout(reg) 0_u64 => _, one = in(reg) 1_u64,
            rounds = inout(reg) rounds.max(1) => _,
            options(nomem, nostack),
        );
    }
}

/// Four steps of `N` chains, `rounds` times; `$chain` is one step in register number `\n`.
///
/// Written out four times: inside `.rept` the `\()` that ends a name would be expanded too early.
macro_rules! chains {
    ($name:ident, $chain:literal) => {
        fn $name<const N: usize>(rounds: u64) {
            // SAFETY: every processor has these instructions; the changed registers are declared,
            // and the two numbers that are read are static.
            unsafe {
                asm!(
                    "ldr q31, [x20]",
                    ".irp n,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22",
                    "mov v\\n\\().16b, v31.16b",
                    ".endr",
                    "2:",
                    ".irp n,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22",
                    ".if (\\n < 8 && \\n < {chains}) || (\\n >= 16 && \\n - 8 < {chains})",
                    $chain,
                    ".endif",
                    ".endr",
                    ".irp n,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22",
                    ".if (\\n < 8 && \\n < {chains}) || (\\n >= 16 && \\n - 8 < {chains})",
                    $chain,
                    ".endif",
                    ".endr",
                    ".irp n,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22",
                    ".if (\\n < 8 && \\n < {chains}) || (\\n >= 16 && \\n - 8 < {chains})",
                    $chain,
                    ".endif",
                    ".endr",
                    ".irp n,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22",
                    ".if (\\n < 8 && \\n < {chains}) || (\\n >= 16 && \\n - 8 < {chains})",
                    $chain,
                    ".endif",
                    ".endr",
                    "subs x9, x9, #1", "b.ne 2b",
                    chains = const N,
                    in("x20") ONES.as_ptr(),
                    inout("x9") rounds.max(1) => _,
                    clobber_abi("C"),
                    options(nostack, readonly),
                );
            }
        }
    };
}

chains!(scalar_add, "fadd d\\n, d\\n, d31");
chains!(scalar_multiply, "fmul d\\n, d\\n, d31");
chains!(
    scalar_multiply_add,
    "fmul d\\n, d\\n, d31\nfadd d\\n, d\\n, d31"
);
chains!(
    scalar_both,
    ".if \\n & 1\nfadd d\\n, d\\n, d31\n.else\nfmul d\\n, d\\n, d31\n.endif"
);
chains!(scalar_fma, "fmadd d\\n, d\\n, d31, d31");
chains!(fma_128, "fmla v\\n\\().2d, v31.2d, v31.2d");

/// The function with this many chains, of those that are compiled.
macro_rules! with_chains {
    ($chains:ident, $name:ident, $($count:literal)*) => {
        match $chains {
            $($count => Some($name::<$count> as Rounds),)*
            _ => None,
        }
    };
}

/// The code of an operation; `None` where none was compiled.
pub fn kernel(operation: Operation, width: Width, chains: usize) -> Option<Rounds> {
    match (operation, width) {
        (Operation::Add, Width::Scalar) => with_chains!(chains, scalar_add, 1 14),
        (Operation::Multiply, Width::Scalar) => with_chains!(chains, scalar_multiply, 1 14),
        (Operation::MultiplyAdd, Width::Scalar) => {
            with_chains!(chains, scalar_multiply_add, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
        }
        (Operation::Fma, Width::Scalar) => {
            with_chains!(chains, scalar_fma, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
        }
        (Operation::Both, Width::Scalar) => with_chains!(chains, scalar_both, 14),
        (Operation::Fma, Width::Bits128) => with_chains!(chains, fma_128, 14),
        _ => None,
    }
}

/// Always `None`: there is no spilling code.
pub fn spilling(_accumulators: usize) -> Option<Rounds> {
    None
}
