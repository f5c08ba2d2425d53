//! Instructions that Rust has no safe name for.

use core::arch::x86_64::{__cpuid, _rdtsc};

/// The time stamp counter.
pub fn time_stamp_counter() -> u64 {
    // SAFETY: the instruction is in every processor that this program is compiled for.
    unsafe { _rdtsc() }
}

/// The four registers that CPUID answers for a leaf: EAX, EBX, ECX, EDX.
///
/// Not to be called in user-mode Linux, where the instruction answers for the host.
pub fn cpuid(leaf: u32) -> [u32; 4] {
    #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
    // SAFETY: every x86-64 CPU has CPUID.
    let answer = unsafe { __cpuid(leaf) };
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

/// What KVM offers its guest (`KVM_CPUID_FEATURES`), when this machine is one of its guests.
pub fn kvm_features() -> Option<u32> {
    // Kernel documentation, virt/kvm/x86/cpuid: signature at 0x40000000, features at the next leaf.
    const SIGNATURE: [&[u8; 4]; 3] = [b"KVMK", b"VMKV", b"M\0\0\0"];
    const HYPERVISOR: u32 = 1 << 31;
    let [_, _, ecx, _] = cpuid(1);
    if ecx & HYPERVISOR == 0 {
        return None;
    }
    let [_, signature @ ..] = cpuid(0x4000_0000);
    let same = signature
        .iter()
        .zip(SIGNATURE)
        .all(|(found, known)| found.to_le_bytes() == *known);
    same.then(|| cpuid(0x4000_0001)[0])
}
