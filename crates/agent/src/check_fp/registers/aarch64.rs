//! The vector registers of arm64. SVE's wider ones begin with them, and only that part is checked.

#![allow(
    clippy::unused_self,
    reason = "other architectures have several widths"
)]

use std::arch::asm;

use super::Image;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 32 registers of 16 bytes: every arm64 CPU that Linux programs are made for.
    Vector,
}

/// 8-byte words of the widest register file.
pub const LARGEST_WORDS: usize = 32 * 2;

impl Width {
    #[cfg(test)]
    pub const NARROWEST: Self = Self::Vector;

    pub fn widest() -> Self {
        Self::Vector
    }

    /// The registers' name in assembly.
    pub fn name(self) -> &'static str {
        "v"
    }

    /// All registers together, in words of 8 bytes.
    pub fn words(self) -> usize {
        LARGEST_WORDS
    }

    /// Fill the registers from `before`, let other processes run, store them to `after`.
    ///
    /// `.irp` repeats a line for each register number. The system calls are `sched_yield` (124) and
    /// `getppid` (173); they change x0 only.
    pub(super) fn through(self, before: &Image, after: &mut Image) {
        // SAFETY: both images are live and as large as all registers; only `after` is written.
        // The system calls take no argument. Every vector register is among the clobbers of the
        // C calling convention.
        unsafe {
            asm!(
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "ldr q\\n, [x20, #16 * \\n]", ".endr",
                "mov x8, #124", "svc #0",
                "mov x8, #173", "svc #0",
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "str q\\n, [x21, #16 * \\n]", ".endr",
                in("x20") &raw const *before, in("x21") &raw mut *after,
                clobber_abi("C"),
            );
        }
    }
}
