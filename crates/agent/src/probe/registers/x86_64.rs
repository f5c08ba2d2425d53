//! SSE2, AVX, FMA and AVX-512.

use std::arch::asm;

use super::{Operation, Rounds, Width};

/// Memory for accumulators without a register.
#[repr(C, align(64))]
struct Spilled([u64; 2 * 32]);

static ONES: [f64; 8] = [1.0; 8];

/// Registers besides the accumulators: one, for the second operand.
pub const OPERANDS: u32 = 1;

/// Numbers of accumulators that [`spilling`] has.
pub const SPILLS: &[usize] = &[
    4, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 28, 32,
];

/// Does the processor have instructions of this width, and has the kernel switched them on?
pub fn has(width: Width) -> bool {
    match width {
        Width::Scalar | Width::Bits128 => true,
        Width::Bits256 => is_x86_feature_detected!("avx"),
        Width::Bits512 => is_x86_feature_detected!("avx512f"),
    }
}

fn has_fma() -> bool {
    is_x86_feature_detected!("fma")
}

/// Dependent additions of integers, one cycle each: 64 in a round.
pub fn adds(rounds: u64) {
    // SAFETY: only the named registers are changed.
    unsafe {
        asm!(
            "2:",
            ".rept 64", "add {sum}, {one}", ".endr",
            "dec {rounds}", "jnz 2b",
            sum = inout(reg) 0_u64 => _, one = in(reg) 1_u64,
            rounds = inout(reg) rounds.max(1) => _,
            options(nomem, nostack),
        );
    }
}

/// Four steps of `N` chains, `rounds` times; `$chain` is one step in register number `\n`.
macro_rules! chains {
    ($name:ident, $load:literal, $one:literal, $chain:literal, $end:literal) => {
        fn $name<const N: usize>(rounds: u64) {
            // SAFETY: the caller has checked that the processor has these instructions; only
            // registers that a callee may change by the C calling convention are changed, and the
            // eight numbers that are read are static.
            unsafe {
                asm!(
                    $one,
                    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14",
                    $load,
                    ".endr",
                    "2:",
                    ".rept 4",
                    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14",
                    ".if \\n < {chains}",
                    $chain,
                    ".endif",
                    ".endr",
                    ".endr",
                    "dec rcx", "jnz 2b",
                    $end,
                    chains = const N,
                    in("r12") ONES.as_ptr(),
                    inout("rcx") rounds.max(1) => _,
                    clobber_abi("C"),
                    options(nostack, readonly),
                );
            }
        }
    };
}

chains!(
    scalar_add,
    "movaps xmm\\n, xmm15",
    "movups xmm15, [r12]",
    "addsd xmm\\n, xmm15",
    ""
);
chains!(
    scalar_multiply,
    "movaps xmm\\n, xmm15",
    "movups xmm15, [r12]",
    "mulsd xmm\\n, xmm15",
    ""
);
chains!(
    scalar_multiply_add,
    "movaps xmm\\n, xmm15",
    "movups xmm15, [r12]",
    "mulsd xmm\\n, xmm15\naddsd xmm\\n, xmm15",
    ""
);
chains!(
    scalar_both,
    "movaps xmm\\n, xmm15",
    "movups xmm15, [r12]",
    ".if \\n & 1\naddsd xmm\\n, xmm15\n.else\nmulsd xmm\\n, xmm15\n.endif",
    ""
);
chains!(
    scalar_fma,
    "vmovaps xmm\\n, xmm15",
    "vmovups xmm15, [r12]",
    "vfmadd213sd xmm\\n, xmm15, xmm15",
    ""
);
chains!(
    both_128,
    "movaps xmm\\n, xmm15",
    "movups xmm15, [r12]",
    ".if \\n & 1\naddpd xmm\\n, xmm15\n.else\nmulpd xmm\\n, xmm15\n.endif",
    ""
);
chains!(
    both_256,
    "vmovaps ymm\\n, ymm15",
    "vmovups ymm15, [r12]",
    ".if \\n & 1\nvaddpd ymm\\n, ymm\\n, ymm15\n.else\nvmulpd ymm\\n, ymm\\n, ymm15\n.endif",
    "vzeroupper"
);
chains!(
    fma_256,
    "vmovaps ymm\\n, ymm15",
    "vmovups ymm15, [r12]",
    "vfmadd213pd ymm\\n, ymm15, ymm15",
    "vzeroupper"
);
chains!(
    fma_512,
    "vmovaps zmm\\n, zmm15",
    "vmovups zmm15, [r12]",
    "vfmadd213pd zmm\\n, zmm15, zmm15",
    "vzeroupper"
);

/// The function with this many chains, of those that are compiled.
macro_rules! with_chains {
    ($chains:ident, $name:ident, $($count:literal)*) => {
        match $chains {
            $($count => Some($name::<$count> as Rounds),)*
            _ => None,
        }
    };
}

/// The code of an operation; `None` where the processor has none, or none was compiled.
pub fn kernel(operation: Operation, width: Width, chains: usize) -> Option<Rounds> {
    if !has(width) || (operation == Operation::Fma && !has_fma()) {
        return None;
    }
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
        (Operation::Both, Width::Bits128) => with_chains!(chains, both_128, 14),
        (Operation::Both, Width::Bits256) => with_chains!(chains, both_256, 14),
        (Operation::Fma, Width::Bits256) => with_chains!(chains, fma_256, 14),
        (Operation::Fma, Width::Bits512) => with_chains!(chains, fma_512, 14),
        _ => None,
    }
}

/// `N` accumulators in 16 registers, with integer additions, which take one cycle only.
///
/// Up to 15 accumulators fit beside the operand. Beyond that, one register is needed to pass values
/// through, so that 14 accumulators stay in registers: each of the others is loaded, added to and
/// stored, as a compiler spills.
fn spilled<const N: usize>(rounds: u64) {
    let mut memory = Spilled([0; 2 * 32]);
    // SAFETY: SSE2 is in every x86-64 processor; the memory holds 32 registers, of which at most
    // 18 are used, and is aligned for them.
    unsafe {
        asm!(
            "pcmpeqd xmm15, xmm15",
            "2:",
            ".rept 4",
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13",
            ".if \\n < {chains}",
            "paddq xmm\\n, xmm15",
            ".endif",
            ".endr",
            ".if {chains} == 15",
            "paddq xmm14, xmm15",
            ".endif",
            ".irp n,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            ".if {chains} > 15",
            ".if \\n < {chains}",
            "movdqa xmm14, [r12 + 16 * (\\n - 14)]",
            "paddq xmm14, xmm15",
            "movdqa [r12 + 16 * (\\n - 14)], xmm14",
            ".endif",
            ".endif",
            ".endr",
            ".endr",
            "dec rcx", "jnz 2b",
            chains = const N,
            in("r12") memory.0.as_mut_ptr(),
            inout("rcx") rounds.max(1) => _,
            clobber_abi("C"),
            options(nostack),
        );
    }
}

/// The code for this many accumulators of [`SPILLS`].
pub fn spilling(accumulators: usize) -> Option<Rounds> {
    with_chains!(accumulators, spilled, 4 6 8 10 12 13 14 15 16 17 18 19 20 22 24 28 32)
}
