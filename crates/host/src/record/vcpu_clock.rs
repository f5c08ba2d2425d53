//! The time stamp counters of virtual CPUs, as KVM sets them.
//!
//! A virtual CPU's counter is this machine's counter times the ratio plus the offset, so a time in
//! the guest converts exactly to a time on this machine.

use std::collections::BTreeMap;

use serde::Serialize;
use vtax_sys::tree::Tree;

/// Where KVM shows them (kernel: arch/x86/kvm/debugfs.c); each machine has a folder
/// `PID-DESCRIPTOR`.
const FOLDER: &str = "/sys/kernel/debug/kvm";

/// A virtual CPU: process, descriptor of the machine, number.
pub type Key = (u32, u32, u32);

/// How a virtual CPU's counter follows this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VcpuClock {
    /// Process of the virtual machine.
    pub vm: u32,
    /// Number of the virtual CPU.
    pub vcpu: u32,
    /// Ticks that are added.
    pub tsc_offset: i64,
    /// The ratio is this over 2 to the power of `tsc_ratio_bits`; null where the processor cannot
    /// scale, so that the ratio is 1.
    pub tsc_ratio: Option<u64>,
    /// See `tsc_ratio`.
    pub tsc_ratio_bits: Option<u32>,
}

/// Bring the clocks of these processes' virtual CPUs up to date; clocks of virtual CPUs that are
/// gone stay.
pub fn refresh(tree: &Tree, clocks: &mut BTreeMap<Key, VcpuClock>, wanted: impl Fn(u32) -> bool) {
    for machine in tree.names(FOLDER) {
        let Some((vm, descriptor)) = machine_of(&machine).filter(|(vm, _)| wanted(*vm)) else {
            continue;
        };
        for name in tree.names(&format!("{FOLDER}/{machine}")) {
            let Some(vcpu) = name.strip_prefix("vcpu").and_then(|n| n.parse().ok()) else {
                continue;
            };
            let path = |file: &str| format!("{FOLDER}/{machine}/{name}/{file}");
            let Some(tsc_offset) = tree.number(&path("tsc-offset")) else {
                continue;
            };
            let clock = VcpuClock {
                vm,
                vcpu,
                tsc_offset,
                tsc_ratio: tree.number(&path("tsc-scaling-ratio")),
                tsc_ratio_bits: tree.number(&path("tsc-scaling-ratio-frac-bits")),
            };
            clocks.insert((vm, descriptor, vcpu), clock);
        }
    }
}

fn machine_of(name: &str) -> Option<(u32, u32)> {
    let (process, descriptor) = name.split_once('-')?;
    Some((process.parse().ok()?, descriptor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_clocks_of_a_machine_are_found_and_outlive_it() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::at(root.path());
        let put = |path: &str, text: &str| {
            let path = tree.path(FOLDER).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("exits", "5\n");
        put("88-11/vcpu0/tsc-offset", "-7000000000000\n");
        put("88-11/vcpu0/tsc-scaling-ratio", "4294967296\n");
        put("88-11/vcpu0/tsc-scaling-ratio-frac-bits", "32\n");
        put("88-11/vcpu1/tsc-offset", "12\n");
        put("88-11/vcpu2/guest_mode", "0\n");
        put("99-7/vcpu0/tsc-offset", "1\n");
        let mut clocks = BTreeMap::new();
        refresh(&tree, &mut clocks, |vm| vm == 88);
        let first = VcpuClock {
            vm: 88,
            vcpu: 0,
            tsc_offset: -7_000_000_000_000,
            tsc_ratio: Some(1 << 32),
            tsc_ratio_bits: Some(32),
        };
        let second = VcpuClock {
            vm: 88,
            vcpu: 1,
            tsc_offset: 12,
            tsc_ratio: None,
            tsc_ratio_bits: None,
        };
        assert_eq!(
            clocks.values().copied().collect::<Vec<_>>(),
            [first, second]
        );
        fs::remove_dir_all(tree.path(FOLDER).join("88-11")).unwrap();
        refresh(&tree, &mut clocks, |_| true);
        assert_eq!(clocks.len(), 3);
    }
}
