//! The clock source, and whether stolen time can be known.

use serde::Serialize;

use crate::facts::{Probe, Virtualization};
use vtax_sys::tree::Tree;

const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
/// `KVM_FEATURE_STEAL_TIME` in EAX of the leaf after KVM's signature (kernel doc kvm/x86/cpuid).
const KVM_STEAL_TIME: u32 = 1 << 5;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clock {
    /// The clock source in use.
    pub clocksource: Option<String>,
    /// The clock sources that could be chosen.
    pub available: Vec<String>,
    /// `true`: stolen time is reported. `false`: there is a hypervisor and it reports none, so
    /// stolen time is unknown. `None`: there is nothing that could steal, or no way to tell.
    pub steal_clock: Option<bool>,
    /// Why `steal_clock` is what it is.
    pub steal_reason: String,
    /// The smallest step of `CLOCK_MONOTONIC`; `None`: it stood still.
    pub step_ns: Option<u64>,
    /// What one reading of that clock takes; `None`: the clock is too coarse to say.
    pub reading_ns: Option<f64>,
    /// Ticks of the time stamp counter per second; `None` where the counter has no constant rate.
    /// On arm64 this is the virtual counter, whose rate is always constant.
    pub tsc_hz: Option<f64>,
}

pub(super) fn read(
    tree: &Tree,
    flags: &[String],
    below: &Virtualization,
    probe: &dyn Probe,
) -> Clock {
    let (steal_clock, steal_reason) = steal(tree, below, probe);
    let available = tree
        .text(&format!("{FOLDER}/available_clocksource"))
        .unwrap_or_default();
    let timing = probe.timing();
    let constant =
        probe.counter_register_hz().is_some() || flags.iter().any(|flag| flag == "constant_tsc");
    Clock {
        clocksource: tree.text(&format!("{FOLDER}/current_clocksource")),
        available: available.split_whitespace().map(str::to_owned).collect(),
        steal_clock,
        steal_reason,
        step_ns: timing.step_ns,
        reading_ns: timing.reading_ns,
        tsc_hz: timing.counter_hz.filter(|_| constant),
    }
}

fn steal(tree: &Tree, below: &Virtualization, probe: &dyn Probe) -> (Option<bool>, String) {
    let disabled = tree
        .text("/proc/cmdline")
        .is_some_and(|line| line.split_whitespace().any(|word| word == "no-steal-acc"));
    let (known, reason) = match below.kind {
        "none" => (None, "bare metal: there is no hypervisor to steal time"),
        "unknown" => (None, "the hypervisor is not known"),
        "xen" => (Some(true), "Xen: run-state accounting"),
        "kvm" if disabled => (
            Some(false),
            "switched off by no-steal-acc on the command line",
        ),
        "kvm" => return kvm_steal(below, probe),
        "uml" => (Some(false), "user-mode Linux has no steal clock"),
        "gvisor" => (Some(false), "gVisor has no steal clock"),
        "qemu-tcg" => (Some(false), "QEMU's emulation has no steal clock"),
        _ => (Some(false), "Linux has no steal clock on this hypervisor"),
    };
    (known, reason.into())
}

fn kvm_steal(below: &Virtualization, probe: &dyn Probe) -> (Option<bool>, String) {
    let Some(leaf) = below.leaf.map(|leaf| leaf + 1) else {
        return (None, "KVM's feature leaf is not known".into());
    };
    let offered = probe
        .cpuid(leaf)
        .is_some_and(|[features, ..]| features & KVM_STEAL_TIME != 0);
    let verb = if offered { "offers" } else { "does not offer" };
    (
        Some(offered),
        format!("KVM {verb} KVM_FEATURE_STEAL_TIME (CPUID {leaf:#x})"),
    )
}
