//! The time stamp counters of virtual CPUs, as KVM sets them.
//!
//! A virtual CPU's counter is this machine's, times the ratio, plus the offset: with both a time in
//! the guest is one here exactly.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// Where KVM tells (kernel: arch/x86/kvm/debugfs.c); a folder `PID-DESCRIPTOR` for each machine.
const FOLDER: &str = "sys/kernel/debug/kvm";

/// Which virtual CPU: process, descriptor of the machine, number.
pub type Key = (u32, u32, u32);

/// How a virtual CPU's counter follows this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VcpuClock {
    /// Process of the virtual machine.
    pub vm: u32,
    /// Number of the virtual CPU.
    pub vcpu: u32,
    /// Ticks added.
    pub tsc_offset: i64,
    /// The ratio is this over 2 to the power of `tsc_ratio_bits`; null where the processor cannot
    /// scale, so that it is 1.
    pub tsc_ratio: Option<u64>,
    /// See `tsc_ratio`.
    pub tsc_ratio_bits: Option<u32>,
}

/// Bring the clocks of these processes' virtual CPUs up to date; those that are gone stay.
pub fn refresh(root: &Path, clocks: &mut BTreeMap<Key, VcpuClock>, wanted: impl Fn(u32) -> bool) {
    for (machine, name) in folders(&root.join(FOLDER)) {
        let Some((vm, descriptor)) = machine_of(&name).filter(|(vm, _)| wanted(*vm)) else {
            continue;
        };
        for (folder, name) in folders(&machine) {
            let Some(vcpu) = name.strip_prefix("vcpu").and_then(|n| n.parse().ok()) else {
                continue;
            };
            let number = |file: &str| fs::read_to_string(folder.join(file)).ok();
            let Some(tsc_offset) = number("tsc-offset").and_then(|text| text.trim().parse().ok())
            else {
                continue;
            };
            let clock = VcpuClock {
                vm,
                vcpu,
                tsc_offset,
                tsc_ratio: number("tsc-scaling-ratio").and_then(|text| text.trim().parse().ok()),
                tsc_ratio_bits: number("tsc-scaling-ratio-frac-bits")
                    .and_then(|text| text.trim().parse().ok()),
            };
            clocks.insert((vm, descriptor, vcpu), clock);
        }
    }
}

fn machine_of(name: &str) -> Option<(u32, u32)> {
    let (process, descriptor) = name.split_once('-')?;
    Some((process.parse().ok()?, descriptor.parse().ok()?))
}

fn folders(folder: &Path) -> impl Iterator<Item = (std::path::PathBuf, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_of_a_machine_are_found_and_outlive_it() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(FOLDER).join(path);
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
        refresh(root.path(), &mut clocks, |vm| vm == 88);
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
        fs::remove_dir_all(root.path().join(FOLDER).join("88-11")).unwrap();
        refresh(root.path(), &mut clocks, |_| true);
        assert_eq!(clocks.len(), 3);
    }
}
