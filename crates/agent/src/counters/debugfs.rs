//! Counters from `/sys/kernel/debug/kvm` (kernel source, `virt/kvm/kvm_main.c`).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::Reading;
use vtax_sys::tree::Tree;

const FOLDER: &str = "/sys/kernel/debug/kvm";
/// The end of the names of histograms, of which debugfs shows the first bucket only.
const HISTOGRAM: &str = "_hist";
/// The start of the names of peaks, which may be cleared as running totals may.
const PEAK: &str = "max_";
/// The owner may write a value that may be cleared; the kernel does not allow that for gauges.
const OWNER_MAY_WRITE: u32 = 0o200;

/// Is debugfs with KVM's counters mounted?
pub(super) fn mounted(tree: &Tree) -> bool {
    !tree.names(FOLDER).is_empty()
}

/// The sums over all virtual machines, as the kernel makes them.
pub(super) fn host(tree: &Tree) -> Reading {
    let mut reading = Reading::default();
    add(tree, FOLDER, &mut reading);
    reading
}

/// Counters by process; one process may have several virtual machines (folders `PID-DESCRIPTOR`).
pub(super) fn guests(tree: &Tree) -> BTreeMap<i32, Reading> {
    let mut guests: BTreeMap<i32, Reading> = BTreeMap::new();
    for name in tree.names(FOLDER) {
        let pid = name.split_once('-').and_then(|(pid, _)| pid.parse().ok());
        if let Some(pid) = pid {
            add(
                tree,
                &format!("{FOLDER}/{name}"),
                guests.entry(pid).or_default(),
            );
        }
    }
    guests
}

fn add(tree: &Tree, folder: &str, reading: &mut Reading) {
    for name in tree.names(folder) {
        if name.ends_with(HISTOGRAM) {
            continue;
        }
        let path = format!("{folder}/{name}");
        let Ok(metadata) = tree.path(&path).metadata() else {
            continue;
        };
        // Folders of virtual CPUs and tables of text are not counters.
        if let (true, Some(value)) = (metadata.is_file(), tree.number(&path)) {
            let writable = metadata.permissions().mode() & OWNER_MAY_WRITE != 0;
            let gauge = !writable || name.starts_with(PEAK);
            reading.add(&name, value, gauge);
        }
    }
}
