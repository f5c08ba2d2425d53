//! Filling vector registers, entering the kernel, and storing them again: in assembly, because
//! only there nothing else touches the registers in between.

#![allow(unsafe_code)]

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;

pub use arch::Width;

use arch::LARGEST_WORDS;

/// Room for all registers.
#[repr(C, align(64))]
struct Image([u64; LARGEST_WORDS]);

impl Image {
    /// Values that depend on the seed, no two alike (Knuth's multiplier).
    fn of(seed: u64) -> Self {
        let mut value = seed;
        Self(std::array::from_fn(|_| {
            value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            value
        }))
    }
}

/// Fill all registers, let other processes run, and say whether the values are still there.
///
/// The caller has checked that the CPU has registers of this width ([`Width::widest`]).
pub fn survive(width: Width, seed: u64) -> bool {
    let before = Image::of(seed);
    let mut after = Image([0; LARGEST_WORDS]);
    width.through(&before, &mut after);
    before.0[..width.words()] == after.0[..width.words()]
}
