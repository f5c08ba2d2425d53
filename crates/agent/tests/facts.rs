//! Facts of fake trees, with fake CPUs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::PathBuf;

use nix::errno::Errno;
use serde_json::{Value, json};
use vtax_agent::clocks::timing::Timing;
use vtax_agent::facts::{Probe, gather_with};
use vtax_sys::tree::Tree;

/// Answers CPUID leaf 1 and the hypervisor leaves.
struct Fake {
    hypervisor: bool,
    leaves: Vec<(u32, [u32; 4])>,
    counter: Result<(), Errno>,
}

impl Fake {
    fn metal() -> Self {
        Self {
            hypervisor: false,
            leaves: Vec::new(),
            counter: Ok(()),
        }
    }

    fn hypervisor(signatures: &[(u32, &[u8; 12])]) -> Self {
        let word = |text: &[u8; 12], at: usize| {
            u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]])
        };
        let leaf = |(leaf, text): &(u32, &[u8; 12])| {
            (
                *leaf,
                [leaf + 1, word(text, 0), word(text, 4), word(text, 8)],
            )
        };
        let leaves = signatures.iter().map(leaf).collect();
        Self {
            hypervisor: true,
            leaves,
            counter: Err(Errno::ENOENT),
        }
    }

    fn with_features(mut self, leaf: u32, eax: u32) -> Self {
        self.leaves.push((leaf, [eax, 0, 0, 0]));
        self
    }
}

impl Probe for Fake {
    fn cpuid(&self, leaf: u32) -> Option<[u32; 4]> {
        if leaf == 1 {
            return Some([0, 0, u32::from(self.hypervisor) << 31, 0]);
        }
        let found = self.leaves.iter().find(|(known, _)| *known == leaf);
        Some(found.map_or([0; 4], |(_, registers)| *registers))
    }

    fn counter_register_hz(&self) -> Option<u64> {
        None
    }

    fn instruction_counter(&self) -> Result<(), Errno> {
        self.counter
    }

    fn machine(&self) -> Option<String> {
        Some("x86_64".into())
    }

    fn timing(&self) -> Timing {
        Timing {
            step_ns: Some(10),
            reading_ns: Some(25.5),
            counter_hz: Some(3.4e9),
        }
    }
}

/// For trees in which CPUID must not be asked.
struct NoCpuid;

impl Probe for NoCpuid {
    fn cpuid(&self, leaf: u32) -> Option<[u32; 4]> {
        panic!("CPUID leaf {leaf:#x} was asked; it would describe the host")
    }

    fn counter_register_hz(&self) -> Option<u64> {
        None
    }

    fn instruction_counter(&self) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    fn machine(&self) -> Option<String> {
        None
    }

    fn timing(&self) -> Timing {
        Timing::default()
    }
}

fn fixture(name: &str) -> Tree {
    Tree::at(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name),
    )
}

fn facts(name: &str, probe: &dyn Probe) -> Value {
    json!(gather_with(&fixture(name), probe))
}

#[test]
fn gvisor_is_known_by_its_version_and_not_by_the_cpu_of_its_host() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    let version = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n";
    std::fs::write(folder.path().join("proc/version"), version).unwrap();
    let host =
        Fake::hypervisor(&[(0x4000_0000, b"KVMKVMKVM\0\0\0")]).with_features(0x4000_0001, 32);
    let facts = gather_with(&Tree::at(folder.path()), &host);
    assert_eq!(facts.virtualization.kind, "gvisor");
    assert_eq!(facts.virtualization.hypervisor_vendor, None);
    assert_eq!(facts.clock.steal_clock, Some(false));
    assert_eq!(facts.kernel.release.as_deref(), Some("4.4.0"));
    let version = facts.kernel.version.unwrap();
    assert!(version.starts_with("#1 SMP Sun Jan 10"), "{version}");
}

#[test]
fn bare_metal() {
    let facts = facts("metal", &Fake::metal());
    let expected = json!({
        "agent": env!("CARGO_PKG_VERSION"),
        "kernel": {"release": "6.12.1-amd64", "version": "#1 SMP Debian 6.12.1-1", "machine": "x86_64"},
        "virtualization": {"kind": "none", "hypervisor_vendor": null,
                           "source": "CPUID leaf 1: no hypervisor bit"},
        "cpu": {
            "vendor": "AuthenticAMD", "model": "AMD Ryzen 9 5950X 16-Core Processor",
            "family": 25, "model_number": 33, "stepping": 2, "microcode": "0xa201210",
            "online": 4, "possible": 32, "threads_per_core": 2, "smt": "on",
            "flags": ["avx", "avx2", "fpu", "sse2"],
            "caches": [
                {"level": 1, "type": "Data", "size_bytes": 32768, "shared_by": "0,2"},
                {"level": 1, "type": "Instruction", "size_bytes": 32768, "shared_by": "0,2"},
                {"level": 2, "type": "Unified", "size_bytes": 524_288, "shared_by": "0,2"},
                {"level": 3, "type": "Unified", "size_bytes": 33_554_432, "shared_by": "0-3"}]},
        "memory": {"total_bytes": 67_340_337_152_u64, "available_bytes": 61_440_000_000_u64,
                   "swap_total_bytes": 8_589_930_496_u64, "transparent_hugepages": "madvise",
                   "hugepages_total": 16, "numa_nodes": 2},
        "clock": {"clocksource": "tsc", "available": ["tsc", "hpet", "acpi_pm"],
                  "steal_clock": null,
                  "steal_reason": "bare metal: there is no hypervisor to steal time",
                  // Without constant_tsc among the flags the counter's rate says nothing.
                  "step_ns": 10, "reading_ns": 25.5, "tsc_hz": null},
        "governor": "performance",
        "mitigations": {"meltdown": "Not affected", "retbleed": "Mitigation: IBPB"},
        "cgroup": {"version": 2, "memory_limit_bytes": 8_589_934_592_u64, "cpu_quota": 1.5},
        "affinity": [0, 1, 3],
        "pmu": {"present": true, "reason": "perf_event_open counts instructions"},
        "mounts_read_only_root": true,
        "uptime_s": 1234.56
    });
    assert_eq!(facts, expected);
}

#[test]
fn user_mode_linux_is_recognised_without_cpuid() {
    let facts = facts("uml", &NoCpuid);
    assert_eq!(facts["virtualization"]["kind"], "uml");
    assert_eq!(facts["virtualization"]["hypervisor_vendor"], Value::Null);
    assert_eq!(facts["clock"]["steal_clock"], false);
    assert_eq!(facts["cpu"]["vendor"], "User Mode Linux");
    assert_eq!(facts["cpu"]["online"], 1);
    assert_eq!(facts["cpu"]["family"], Value::Null);
    assert_eq!(facts["pmu"]["present"], false);
    assert_eq!(facts["cgroup"]["version"], Value::Null);
}

/// An arm64 processor: no CPUID, and a register for the counter's rate.
struct Arm;

impl Probe for Arm {
    fn cpuid(&self, _leaf: u32) -> Option<[u32; 4]> {
        None
    }

    fn counter_register_hz(&self) -> Option<u64> {
        Some(62_500_000)
    }

    fn instruction_counter(&self) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }

    fn machine(&self) -> Option<String> {
        Some("aarch64".into())
    }

    fn timing(&self) -> Timing {
        Timing {
            counter_hz: Some(62.5e6),
            ..Timing::default()
        }
    }
}

#[test]
fn arm64_is_described_by_its_own_names() {
    let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\
                   CPU architecture: 8\nCPU part\t: 0xd0b\nCPU revision\t: 1\n";
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("proc/cpuinfo", cpuinfo);
    put("sys/bus/event_source/devices/armv8_pmuv3/type", "10\n");
    let facts = || gather_with(&Tree::at(folder.path()), &Arm);
    let cpu = facts().cpu;
    assert_eq!(cpu.vendor.as_deref(), Some("ARM"));
    assert_eq!(
        (cpu.family, cpu.model_number, cpu.stepping),
        (Some(8), Some(0xd0b), Some(1))
    );
    assert_eq!(cpu.flags, ["asimd", "fp"]);
    assert_eq!(facts().clock.tsc_hz, Some(62.5e6));
    assert!(facts().pmu.present);
    // Nothing names a hypervisor, but there may still be one.
    assert_eq!(facts().virtualization.kind, "unknown");
    put("proc/device-tree/compatible", "linux,dummy-virt\0");
    let below = facts().virtualization;
    assert_eq!(below.kind, "unknown");
    assert_eq!(below.hypervisor_vendor.as_deref(), Some("linux,dummy-virt"));
    put("sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
    assert_eq!(facts().virtualization.kind, "kvm");
    put("sys/class/dmi/id/product_name", "c7g.metal\n");
    assert_eq!(facts().virtualization.kind, "none");
    put("proc/device-tree/hypervisor/compatible", "linux,kvm\0");
    put("sys/class/dmi/id/product_name", "x\n");
    assert_eq!(facts().virtualization.kind, "kvm");
}

#[test]
fn nothing_is_guessed_where_nothing_can_be_read() {
    let facts = facts("no-such-fixture", &Fake::metal());
    for path in [
        "/kernel/release",
        "/cpu/vendor",
        "/cpu/online",
        "/memory/total_bytes",
        "/memory/numa_nodes",
        "/clock/clocksource",
        "/governor",
        "/cgroup/version",
        "/affinity",
        "/mounts_read_only_root",
        "/uptime_s",
    ] {
        assert_eq!(facts.pointer(path), Some(&Value::Null), "{path}");
    }
    assert_eq!(facts["cpu"]["caches"], json!([]));
}

#[test]
fn hypervisors_by_their_signature() {
    for (signature, kind) in [
        (b"KVMKVMKVM\0\0\0", "kvm"),
        (b"XenVMMXenVMM", "xen"),
        (b"VMwareVMware", "vmware"),
        (b"Microsoft Hv", "hyperv"),
        (b"VBoxVBoxVBox", "virtualbox"),
        (b"TCGTCGTCGTCG", "qemu-tcg"),
        (b"bhyve bhyve ", "unknown"),
    ] {
        let facts = facts("metal", &Fake::hypervisor(&[(0x4000_0000, signature)]));
        assert_eq!(facts["virtualization"]["kind"], kind);
        let vendor = facts["virtualization"]["hypervisor_vendor"]
            .as_str()
            .unwrap();
        assert!(signature.starts_with(vendor.as_bytes()), "{vendor}");
    }
}

#[test]
fn kvm_behind_enlightenments_is_kvm_and_its_features_are_in_its_own_leaves() {
    let probe = Fake::hypervisor(&[
        (0x4000_0000, b"Microsoft Hv"),
        (0x4000_0100, b"KVMKVMKVM\0\0\0"),
    ])
    .with_features(0x4000_0101, 1 << 5);
    let facts = facts("metal", &probe);
    assert_eq!(facts["virtualization"]["kind"], "kvm");
    assert_eq!(facts["virtualization"]["hypervisor_vendor"], "Microsoft Hv");
    assert_eq!(facts["clock"]["steal_clock"], true);
}

#[test]
fn steal_is_known_only_where_kvm_offers_it() {
    let kvm = || Fake::hypervisor(&[(0x4000_0000, b"KVMKVMKVM\0\0\0")]);
    let with = facts("metal", &kvm().with_features(0x4000_0001, 1 << 5));
    assert_eq!(with["clock"]["steal_clock"], true);
    let without = facts("metal", &kvm().with_features(0x4000_0001, !(1 << 5)));
    assert_eq!(without["clock"]["steal_clock"], false);
    let emulated = facts(
        "metal",
        &Fake::hypervisor(&[(0x4000_0000, b"TCGTCGTCGTCG")]),
    );
    assert_eq!(emulated["clock"]["steal_clock"], false);
}

#[test]
fn counters_that_are_forbidden_are_still_there() {
    let mut probe = Fake::metal();
    probe.counter = Err(Errno::EACCES);
    let forbidden = facts("metal", &probe);
    assert_eq!(forbidden["pmu"]["present"], true);
    assert!(
        forbidden["pmu"]["reason"]
            .as_str()
            .unwrap()
            .contains("paranoid is 3")
    );
    let absent = facts("uml", &NoCpuid);
    assert_eq!(absent["pmu"]["reason"], "the kernel has no perf_event_open");
}
