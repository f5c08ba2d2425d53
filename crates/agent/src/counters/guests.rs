//! The processes that have a KVM virtual machine, and their time in it.

use std::collections::BTreeMap;

use vtax_sys::clock;
use vtax_sys::tree::Tree;

/// The KVM descriptors that a process holds, see [`Tree::kvm_descriptors`].
pub(super) type Descriptors = BTreeMap<i32, String>;

/// Processes with a virtual machine. Processes whose descriptors may not be read are not found.
pub(super) fn running(tree: &Tree) -> BTreeMap<i32, Descriptors> {
    let processes = tree.processes().into_iter();
    processes
        .filter_map(|pid| Some((pid, tree.kvm_descriptors(pid)?)))
        .collect()
}

/// The guest time of a process, all threads together, in seconds.
#[allow(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
pub(super) fn guest_seconds(tree: &Tree, pid: i32) -> Option<f64> {
    let ticks = tree.guest_ticks(pid)?;
    Some(ticks as f64 / f64::from(clock::ticks_per_second()))
}
