//! Reasons of VM exits, by the names that users see.

/// A name and the codes that it stands for: SVM's (arch/x86/include/uapi/asm/svm.h) and VMX's
/// (arch/x86/include/uapi/asm/vmx.h).
pub struct Reason {
    /// The part of the event's name after `kvm.exit.`.
    pub name: &'static str,
    /// What makes the guest exit.
    pub about: &'static str,
    /// AMD's exit codes.
    pub svm: &'static [u16],
    /// Intel's basic exit reasons.
    pub vmx: &'static [u16],
}

const fn reason(
    name: &'static str,
    about: &'static str,
    svm: &'static [u16],
    vmx: &'static [u16],
) -> Reason {
    Reason {
        name,
        about,
        svm,
        vmx,
    }
}

/// All reasons with a name; the others are counted as `other`.
pub const REASONS: [Reason; 27] = [
    reason("npf", "nested page fault, EPT violation", &[0x400], &[48]),
    reason(
        "ept_misconfig",
        "emulated MMIO by a marked entry",
        &[],
        &[49],
    ),
    reason("page_fault", "page fault of the guest", &[0x4e], &[]),
    // VMX reports every exception and the NMI by one reason.
    reason(
        "exception",
        "exception of the guest except page faults",
        &[0x41, 0x43, 0x46, 0x47, 0x4d, 0x51, 0x52],
        &[0],
    ),
    reason("interrupt", "interrupt of the host", &[0x60], &[1]),
    reason("nmi", "non-maskable interrupt of the host", &[0x61], &[]),
    reason(
        "interrupt_window",
        "the guest can take an interrupt",
        &[0x64],
        &[7],
    ),
    reason(
        "nmi_window",
        "the guest can take a non-maskable interrupt",
        &[0x74],
        &[8],
    ),
    reason(
        "cr_read",
        "read of a control register",
        &[0x00, 0x02, 0x03, 0x04, 0x08],
        &[],
    ),
    reason(
        "cr_write",
        "write of a control register",
        &[0x10, 0x12, 0x13, 0x14, 0x18, 0x65],
        &[],
    ),
    reason("cr", "access to a control register", &[], &[28]),
    reason(
        "dr",
        "access to a debug register",
        &[
            0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35,
            0x36, 0x37,
        ],
        &[29],
    ),
    reason("io", "port input or output", &[0x7b], &[30]),
    reason(
        "msr",
        "access to a model-specific register",
        &[0x7c],
        &[31, 32],
    ),
    reason("hlt", "halt", &[0x78], &[12]),
    reason("pause", "spinning", &[0x77], &[40]),
    reason("cpuid", "CPUID", &[0x72], &[10]),
    reason(
        "invlpg",
        "invalidation of a page's translation",
        &[0x79, 0x7a],
        &[14],
    ),
    reason("hypercall", "hypercall", &[0x81], &[18]),
    reason(
        "rdtsc",
        "read of the time stamp counter",
        &[0x6e, 0x87],
        &[16, 51],
    ),
    reason("rdpmc", "read of a performance counter", &[0x6f], &[15]),
    reason("wbinvd", "write-back of the caches", &[0x76, 0x89], &[54]),
    reason("xsetbv", "change of the extended state", &[0x8d], &[55]),
    reason(
        "apic",
        "access to the interrupt controller",
        &[0x401, 0x402],
        &[44, 45, 56],
    ),
    reason("mwait", "wait for a store", &[0x8a, 0x8b, 0x8c], &[36, 39]),
    reason(
        "preemption_timer",
        "the preemption timer ran out",
        &[],
        &[52],
    ),
    reason("shutdown", "triple fault", &[0x7f], &[2]),
];

/// Number of elements of the programs' tables; `EXIT_INDEXES` there.
pub const INDEXES: usize = 273;

/// The index of a code in the table, as by `exit_index` in kvm.bpf.c.
pub fn index(code: u16) -> usize {
    match code {
        0..256 => usize::from(code),
        0x400..0x410 => 256 + usize::from(code - 0x400),
        _ => INDEXES - 1,
    }
}
