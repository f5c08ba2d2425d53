//! Are there hardware performance counters?

use nix::errno::Errno;
use serde::Serialize;

use crate::facts::Probe;
use vtax_sys::tree::Tree;

/// Event sources that the kernel registers for a core's counters (hybrid CPUs have two).
const CORE_SOURCES: [&str; 3] = ["cpu", "cpu_core", "cpu_atom"];
/// The beginning of the names of arm64's sources, such as `armv8_cortex_a76`.
const ARM_SOURCES: &str = "armv8_";

/// Hardware performance counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pmu {
    pub present: bool,
    /// How that is known, and whether they may be used.
    pub reason: String,
}

pub(super) fn read(tree: &Tree, probe: &dyn Probe) -> Pmu {
    let (present, reason) = match probe.instruction_counter() {
        Ok(()) => (true, "perf_event_open counts instructions".into()),
        Err(errno @ (Errno::EACCES | Errno::EPERM)) => not_permitted(tree, errno),
        Err(Errno::ENOENT | Errno::EOPNOTSUPP) => {
            (false, "the kernel offers no hardware event: no PMU".into())
        }
        Err(Errno::ENOSYS) => (false, "the kernel has no perf_event_open".into()),
        Err(errno) => (false, format!("perf_event_open: {}", errno.desc())),
    };
    Pmu { present, reason }
}

/// The answer for an errno of missing permission: the kernel lists its event sources all the same.
fn not_permitted(tree: &Tree, errno: Errno) -> (bool, String) {
    let folder = "/sys/bus/event_source/devices";
    let present = tree
        .names(folder)
        .iter()
        .any(|name| CORE_SOURCES.contains(&name.as_str()) || name.starts_with(ARM_SOURCES));
    let level = tree.text("/proc/sys/kernel/perf_event_paranoid");
    let level = level.unwrap_or_else(|| "unknown".into());
    let listed = if present {
        "listed in"
    } else {
        "not listed in"
    };
    let reason = format!(
        "perf_event_open: {} (perf_event_paranoid is {level}); counters are {listed} {folder}",
        errno.desc()
    );
    (present, reason)
}
