//! SSE2, AVX and AVX-512.

use std::arch::asm;

use super::Image;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 16 registers of 16 bytes, SSE2: every x86-64 CPU.
    Xmm,
    /// 16 registers of 32 bytes, AVX.
    Ymm,
    /// 32 registers of 64 bytes, AVX-512.
    Zmm,
}

impl Width {
    /// The widest registers that the CPU has and the kernel has switched on.
    pub fn widest() -> Self {
        if is_x86_feature_detected!("avx512f") {
            Self::Zmm
        } else if is_x86_feature_detected!("avx") {
            Self::Ymm
        } else {
            Self::Xmm
        }
    }

    /// The registers of every x86-64 CPU.
    #[cfg(test)]
    pub const NARROWEST: Self = Self::Xmm;

    /// The registers' name in assembly.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xmm => "xmm",
            Self::Ymm => "ymm",
            Self::Zmm => "zmm",
        }
    }

    /// All registers together, in words of 8 bytes.
    pub fn words(self) -> usize {
        match self {
            Self::Xmm => 16 * 2,
            Self::Ymm => 16 * 4,
            Self::Zmm => LARGEST_WORDS,
        }
    }

    /// Fill the registers from `before`, let other processes run, store them to `after`.
    pub(super) fn through(self, before: &Image, after: &mut Image) {
        match self {
            Self::Xmm => through_xmm(before, after),
            Self::Ymm => through_ymm(before, after),
            Self::Zmm => through_zmm(before, after),
        }
    }
}

/// 8-byte words of the widest register file.
pub const LARGEST_WORDS: usize = 32 * 8;

/// Load from `[r12]`, call `sched_yield` (24) and `getppid` (110), store to `[r13]`.
///
/// `.irp` repeats a line for each register number. R12 and r13 survive system calls, which change
/// rax, rcx and r11 only.
macro_rules! round_trip {
    ($before:ident, $after:ident, $numbers:literal, $load:literal, $store:literal, $end:literal) => {
        // SAFETY: both images are live and as large as all registers; only `after` is written.
        // The system calls take no argument. Every vector register is among the clobbers of the
        // C calling convention.
        unsafe {
            asm!(
                concat!(".irp n,", $numbers), $load, ".endr",
                "mov eax, 24", "syscall",
                "mov eax, 110", "syscall",
                concat!(".irp n,", $numbers), $store, ".endr",
                $end,
                in("r12") &raw const *$before, in("r13") &raw mut *$after,
                clobber_abi("C"),
            );
        }
    };
}

fn through_xmm(before: &Image, after: &mut Image) {
    round_trip!(
        before,
        after,
        "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movups xmm\\n, [r12 + 16 * \\n]",
        "movups [r13 + 16 * \\n], xmm\\n",
        ""
    );
}

fn through_ymm(before: &Image, after: &mut Image) {
    round_trip!(
        before,
        after,
        "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovups ymm\\n, [r12 + 32 * \\n]",
        "vmovups [r13 + 32 * \\n], ymm\\n",
        "vzeroupper"
    );
}

fn through_zmm(before: &Image, after: &mut Image) {
    round_trip!(
        before,
        after,
        "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovups zmm\\n, [r12 + 64 * \\n]",
        "vmovups [r13 + 64 * \\n], zmm\\n",
        "vzeroupper"
    );
}
