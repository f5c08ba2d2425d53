//! The processes that have a virtual machine of KVM, and their time in it.

use std::collections::BTreeMap;
use std::fs;

use crate::sys;
use crate::tree::Tree;

/// What the link of a descriptor of a virtual machine begins with.
const MACHINE: &str = "anon_inode:kvm-vm";
/// What the links of all descriptors of KVM begin with.
const ANY: &str = "anon_inode:kvm-";
/// Places after field 2 of `guest_time` (field 43 of `/proc/PID/stat`, proc(5)).
const GUEST_TIME: usize = 43 - 3;

/// The descriptors of KVM that a process holds: number to what the link says after
/// `anon_inode:`.
pub(super) type Descriptors = BTreeMap<i32, String>;

/// Processes with a virtual machine. Those whose descriptors may not be read are not found.
pub(super) fn running(tree: &Tree) -> BTreeMap<i32, Descriptors> {
    tree.names("/proc")
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter_map(|pid| Some((pid, descriptors(tree, pid)?)))
        .collect()
}

fn descriptors(tree: &Tree, pid: i32) -> Option<Descriptors> {
    let folder = format!("/proc/{pid}/fd");
    let mut found = Descriptors::new();
    let mut machine = false;
    for name in tree.names(&folder) {
        let link = fs::read_link(tree.path(&format!("{folder}/{name}")));
        let (Ok(number), Ok(link)) = (name.parse(), link) else {
            continue;
        };
        let link = link.to_string_lossy();
        machine |= link == MACHINE;
        if link.starts_with(ANY) {
            let kind = link.trim_start_matches("anon_inode:");
            found.insert(number, kind.to_owned());
        }
    }
    machine.then_some(found)
}

/// The guest time of a process, all threads together, in seconds.
#[allow(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
pub(super) fn guest_seconds(tree: &Tree, pid: i32) -> Option<f64> {
    let text = tree.text(&format!("/proc/{pid}/stat"))?;
    // The name may hold anything, so count from its end.
    let (_, rest) = text.rsplit_once(')')?;
    let ticks: u64 = rest.split_whitespace().nth(GUEST_TIME)?.parse().ok()?;
    Some(ticks as f64 / sys::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_processes_with_a_virtual_machine() {
        let root = tempfile::tempdir().unwrap();
        for (path, target) in [
            ("88/fd/0", "/dev/null"),
            ("88/fd/11", "anon_inode:kvm-vm"),
            ("88/fd/13", "anon_inode:kvm-vcpu:0"),
            ("88/fd/14", "anon_inode:kvm-vcpu-stats:0"),
            ("90/fd/3", "anon_inode:kvm-vcpu-stats:0"),
            ("self/fd/3", "anon_inode:kvm-vm"),
        ] {
            let path = root.path().join("proc").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }
        let found = running(&Tree::at(root.path()));
        let kinds = [(11, "kvm-vm"), (13, "kvm-vcpu:0"), (14, "kvm-vcpu-stats:0")];
        let kinds = kinds.map(|(number, kind)| (number, kind.to_owned()));
        assert_eq!(found, BTreeMap::from([(88, Descriptors::from(kinds))]));
    }
}
