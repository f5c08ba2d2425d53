//! x86-64: the time stamp counter and CPUID.

use std::sync::LazyLock;

use core::arch::x86_64::{__cpuid_count, __rdtscp, _mm_lfence, _rdtsc};

/// The names of the counter and of the instruction that reads it in order.
pub const COUNTER: &str = "rdtsc";
/// See [`COUNTER`].
pub const COUNTER_IN_ORDER: Option<&str> = Some("rdtscp");

pub fn time_stamp_counter() -> u64 {
    // SAFETY: the instruction is in every processor that this program is compiled for.
    unsafe { _rdtsc() }
}

/// The time stamp counter by RDTSCP; `None` where the processor has no such instruction.
#[inline]
pub fn time_stamp_counter_in_order() -> Option<u64> {
    // Asked only once: CPUID causes a VM exit, which takes longer than the reading.
    static PRESENT: LazyLock<bool> = LazyLock::new(has_rdtscp);
    let mut processor = 0;
    // SAFETY: the instruction is there; it writes one number, which is a local variable.
    PRESENT.then(|| unsafe { __rdtscp(&raw mut processor) })
}

/// Does this processor have RDTSCP? Where CPUID answers for the host, the instruction also runs on
/// the host.
fn has_rdtscp() -> bool {
    const EXTENDED: u32 = 0x8000_0000;
    const RDTSCP: u32 = 1 << 27;
    registers(EXTENDED)[0] > EXTENDED && registers(EXTENDED + 1)[3] & RDTSCP != 0
}

/// Wait until all earlier loads are done: RDTSC by itself may execute before them.
#[inline]
pub fn finish_loads() {
    // SAFETY: SSE2 is in every x86-64 processor.
    #[allow(unused_unsafe, reason = "safe in newer Rust")]
    unsafe {
        _mm_lfence();
    }
}

/// Always `None`: no register holds the counter's rate; on some processors CPUID has it.
pub fn counter_register_hz() -> Option<u64> {
    None
}

/// The four registers that CPUID answers for a leaf: EAX, EBX, ECX, EDX.
///
/// Do not call it in user-mode Linux, where the instruction answers for the host.
pub fn cpuid(leaf: u32) -> Option<[u32; 4]> {
    cpuid_leaf(leaf, 0)
}

/// The same for a leaf that has several parts (ECX).
pub fn cpuid_leaf(leaf: u32, part: u32) -> Option<[u32; 4]> {
    #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
    // SAFETY: every x86-64 CPU has CPUID.
    let answer = unsafe { __cpuid_count(leaf, part) };
    Some([answer.eax, answer.ebx, answer.ecx, answer.edx])
}

fn registers(leaf: u32) -> [u32; 4] {
    cpuid_leaf(leaf, 0).unwrap_or_default()
}

/// What KVM offers its guest (`KVM_CPUID_FEATURES`), when this machine is one of its guests.
pub fn kvm_features() -> Option<u32> {
    // Kernel documentation, virt/kvm/x86/cpuid: signature at 0x40000000, features at the next leaf.
    const SIGNATURE: [&[u8; 4]; 3] = [b"KVMK", b"VMKV", b"M\0\0\0"];
    const HYPERVISOR: u32 = 1 << 31;
    let [_, _, ecx, _] = registers(1);
    if ecx & HYPERVISOR == 0 {
        return None;
    }
    let [_, signature @ ..] = registers(0x4000_0000);
    let same = signature
        .iter()
        .zip(SIGNATURE)
        .all(|(found, known)| found.to_le_bytes() == *known);
    same.then(|| registers(0x4000_0001)[0])
}
