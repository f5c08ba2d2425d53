//! Which hypervisor is underneath.

use serde::Serialize;

use crate::facts::Probe;
use vtax_sys::tree::{Tree, field};

/// CPUID leaf 1, ECX: a hypervisor is present (Intel SDM and AMD APM reserve it for that).
const HYPERVISOR_BIT: u32 = 1 << 31;
/// The leaf at which hypervisors put their signature, and the next leaves, where a second
/// hypervisor may put its own: KVM with Hyper-V enlightenments answers as Hyper-V first.
const SIGNATURE_LEAVES: [u32; 3] = [0x4000_0000, 0x4000_0100, 0x4000_0200];

/// The signature in EBX, ECX, EDX of the leaf, without trailing NULs, and the kind.
const SIGNATURES: [(&str, &str); 6] = [
    ("KVMKVMKVM", "kvm"),
    ("XenVMMXenVMM", "xen"),
    ("VMwareVMware", "vmware"),
    ("Microsoft Hv", "hyperv"),
    ("VBoxVBoxVBox", "virtualbox"),
    ("TCGTCGTCGTCG", "qemu-tcg"),
];

/// Files of the firmware's tables, how they begin, and the kind. "unknown" is for QEMU's machine,
/// which KVM and TCG show alike.
const FIRMWARE: [(&str, &[(&str, &str)]); 4] = [
    (
        "/proc/device-tree/hypervisor/compatible",
        &[
            ("linux,kvm", "kvm"),
            ("xen,xen", "xen"),
            ("vmware", "vmware"),
        ],
    ),
    (
        "/sys/class/dmi/id/product_name",
        &[
            ("KVM", "kvm"),
            ("Google Compute Engine", "kvm"),
            ("VMware", "vmware"),
            ("Virtual Machine", "hyperv"),
            ("VirtualBox", "virtualbox"),
        ],
    ),
    (
        "/sys/class/dmi/id/sys_vendor",
        &[("QEMU", "unknown"), ("Xen", "xen"), ("Amazon EC2", "kvm")],
    ),
    (
        "/proc/device-tree/compatible",
        &[("linux,dummy-virt", "unknown")],
    ),
];

/// What gVisor's kernel calls itself (the constant `LinuxVersion` of its source).
const GVISOR_VERSION: &str = "#1 SMP Sun Jan 10 15:06:54 PST 2016";

/// What this kernel runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Virtualization {
    /// none, kvm, xen, vmware, hyperv, virtualbox, qemu-tcg, uml, gvisor or unknown.
    pub kind: &'static str,
    /// The signature in CPUID leaf 0x40000000; without CPUID what the firmware says.
    pub hypervisor_vendor: Option<String>,
    /// Where the answer comes from.
    pub source: String,
    /// The leaf with the signature of `kind`; the next leaf has its features.
    #[serde(skip)]
    pub leaf: Option<u32>,
}

pub(super) fn read(tree: &Tree, cpuinfo: &str, probe: &dyn Probe) -> Virtualization {
    if field(cpuinfo, "vendor_id") == Some("User Mode Linux") {
        // CPUID is not trapped there: it would describe the host.
        return without_leaf("uml", "/proc/cpuinfo vendor_id");
    }
    if tree
        .text("/proc/version")
        .is_some_and(|version| version.ends_with(GVISOR_VERSION))
    {
        // CPUID is not trapped here either.
        return without_leaf("gvisor", "/proc/version");
    }
    let Some([_, _, features, _]) = probe.cpuid(1) else {
        return by_firmware(tree);
    };
    if features & HYPERVISOR_BIT != 0 {
        return by_signature(probe);
    }
    if tree.text("/sys/hypervisor/type").as_deref() == Some("xen") {
        return without_leaf("xen", "/sys/hypervisor/type");
    }
    without_leaf("none", "CPUID leaf 1: no hypervisor bit")
}

fn without_leaf(kind: &'static str, source: &str) -> Virtualization {
    Virtualization {
        kind,
        hypervisor_vendor: None,
        source: source.into(),
        leaf: None,
    }
}

/// Where there is no CPUID, the firmware's tables tell whose machine this is, as far as possible:
/// KVM and emulation show the same tables.
fn by_firmware(tree: &Tree) -> Virtualization {
    let product = "/sys/class/dmi/id/product_name";
    if tree
        .text(product)
        .is_some_and(|name| name.contains(".metal"))
    {
        // Amazon's bare-metal instances.
        return without_leaf("none", product);
    }
    for (file, names) in FIRMWARE {
        let Some(text) = tree.text(file) else {
            continue;
        };
        // Strings of a device tree end with NUL.
        let text = text.trim_end_matches('\0');
        if let Some((_, kind)) = names.iter().find(|(known, _)| text.starts_with(known)) {
            return Virtualization {
                hypervisor_vendor: Some(text.to_owned()),
                ..without_leaf(kind, file)
            };
        }
    }
    // A machine that says nothing may still be virtual.
    without_leaf("unknown", "no CPUID, and the firmware names no hypervisor")
}

fn by_signature(probe: &dyn Probe) -> Virtualization {
    let first = signature(probe, SIGNATURE_LEAVES[0]);
    let mut found = ("unknown", SIGNATURE_LEAVES[0]);
    for leaf in SIGNATURE_LEAVES {
        let text = signature(probe, leaf);
        match SIGNATURES.iter().find(|(known, _)| *known == text) {
            // Hyper-V's interface is the only one that other hypervisors offer besides their own.
            Some((_, kind)) if found.0 == "unknown" || found.0 == "hyperv" => found = (kind, leaf),
            _ => {}
        }
    }
    let (kind, leaf) = found;
    Virtualization {
        kind,
        hypervisor_vendor: (!first.is_empty()).then_some(first),
        source: format!("CPUID leaf {leaf:#x}"),
        leaf: Some(leaf),
    }
}

fn signature(probe: &dyn Probe, leaf: u32) -> String {
    let Some([_, ebx, ecx, edx]) = probe.cpuid(leaf) else {
        return String::new();
    };
    let bytes: Vec<u8> = [ebx, ecx, edx]
        .iter()
        .flat_map(|part| part.to_le_bytes())
        .collect();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0')
        .chars()
        .filter(|letter| !letter.is_control())
        .collect()
}
