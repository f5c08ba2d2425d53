//! Instructions for which Rust has no safe function.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;

pub use arch::{
    COUNTER, COUNTER_IN_ORDER, counter_register_hz, cpuid, cpuid_leaf, finish_loads, kvm_features,
    time_stamp_counter, time_stamp_counter_in_order,
};

/// The time stamp counter, read after all earlier loads and before all later ones, for timing a
/// duration.
#[inline]
pub fn time_stamp() -> u64 {
    finish_loads();
    let ticks = time_stamp_counter();
    finish_loads();
    ticks
}
