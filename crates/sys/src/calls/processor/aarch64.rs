//! arm64: the virtual counter. There is no CPUID.

use std::arch::asm;

/// The counter's name; no instruction that every processor has reads the counter in order.
pub const COUNTER: &str = "cntvct";
/// See [`COUNTER`].
pub const COUNTER_IN_ORDER: Option<&str> = None;

/// The virtual counter (`CNTVCT_EL0`), which stands for the time stamp counter here.
pub fn time_stamp_counter() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets programs read this register; nothing else is touched.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Always `None`: only newer processors have `CNTVCTSS_EL0`.
#[inline]
pub fn time_stamp_counter_in_order() -> Option<u64> {
    None
}

/// The counter's rate, as the firmware has set it (`CNTFRQ_EL0`).
pub fn counter_register_hz() -> Option<u64> {
    let rate: u64;
    // SAFETY: Linux lets programs read this register; nothing else is touched.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nomem, nostack)) };
    Some(rate).filter(|rate| *rate > 0)
}

/// Wait until all earlier loads are done: otherwise the counter may be read before they are.
#[inline]
pub fn finish_loads() {
    // SAFETY: barriers change nothing. Without `nomem` they are compiler barriers too.
    unsafe { asm!("dsb ishld", "isb", options(nostack, preserves_flags)) };
}

/// Always `None`: arm64 has no such instruction.
pub fn cpuid(_leaf: u32) -> Option<[u32; 4]> {
    None
}

/// Always `None`: arm64 has no such instruction.
pub fn cpuid_leaf(_leaf: u32, _part: u32) -> Option<[u32; 4]> {
    None
}

/// Always `None`: only the kernel can find out what KVM offers its guest.
pub fn kvm_features() -> Option<u32> {
    None
}
