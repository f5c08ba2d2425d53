//! What machine this is: `vtax-agent facts`.
//!
//! What the machine does not tell is `null`; nothing is guessed.

mod clock;
mod control;
mod cpu;
mod memory;
mod pmu;
mod virtualization;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clocks::timing::{self, Timing};
use crate::{VERSION, facts};
use vtax_sys::calls::{perf, processor};
use vtax_sys::cgroup::locate::root_is_read_only;
use vtax_sys::cpu_list;
use vtax_sys::tree::{Tree, field};

pub use facts::clock::Clock;
pub use facts::control::Cgroup;
pub use facts::cpu::{Cache, Cpu};
pub use facts::memory::Memory;
pub use facts::pmu::Pmu;
pub use facts::virtualization::Virtualization;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    pub agent: &'static str,
    pub kernel: Kernel,
    /// What this kernel runs on.
    pub virtualization: Virtualization,
    pub cpu: Cpu,
    pub memory: Memory,
    pub clock: Clock,
    /// The frequency governor of CPU 0.
    pub governor: Option<String>,
    /// What the kernel does about each vulnerability.
    pub mitigations: BTreeMap<String, String>,
    /// Limits of this process's control groups.
    pub cgroup: Cgroup,
    /// The CPUs that this process may use; `None` when the kernel does not say.
    pub affinity: Option<Vec<usize>>,
    /// Hardware performance counters.
    pub pmu: Pmu,
    /// Is `/` mounted read-only?
    pub mounts_read_only_root: Option<bool>,
    /// Seconds since boot.
    pub uptime_s: Option<f64>,
}

/// The running kernel, from `uname`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Such as `6.1.0-30-amd64`.
    pub release: Option<String>,
    /// Build number and date.
    pub version: Option<String>,
    /// Such as `x86_64`.
    pub machine: Option<String>,
}

/// What cannot be read from a file tree: answers of the CPU and of system calls.
pub trait Probe {
    /// The registers EAX, EBX, ECX, EDX of a CPUID leaf; `None`: the processor has no CPUID.
    fn cpuid(&self, leaf: u32) -> Option<[u32; 4]>;
    /// The rate of the processor's counter from a register; `None`: there is no such register.
    fn counter_register_hz(&self) -> Option<u64>;
    /// Can instructions be counted by hardware? The error is the errno.
    fn instruction_counter(&self) -> Result<(), nix::errno::Errno>;
    /// The hardware's name as `uname` gives it.
    fn machine(&self) -> Option<String>;
    /// How finely this machine measures time.
    fn timing(&self) -> Timing;
}

/// The real machine.
#[derive(Debug, Clone, Copy)]
pub struct RealProbe;

impl Probe for RealProbe {
    fn cpuid(&self, leaf: u32) -> Option<[u32; 4]> {
        processor::cpuid(leaf)
    }

    fn counter_register_hz(&self) -> Option<u64> {
        processor::counter_register_hz()
    }

    fn instruction_counter(&self) -> Result<(), nix::errno::Errno> {
        perf::probe_instruction_counter()
    }

    fn machine(&self) -> Option<String> {
        let name = nix::sys::utsname::uname().ok()?;
        name.machine().to_str().map(str::to_owned)
    }

    fn timing(&self) -> Timing {
        timing::look()
    }
}

/// The facts of this machine.
pub fn gather(tree: &Tree) -> Facts {
    gather_with(tree, &RealProbe)
}

/// The facts of any tree and probe.
pub fn gather_with(tree: &Tree, probe: &dyn Probe) -> Facts {
    let cpuinfo = tree.text("/proc/cpuinfo").unwrap_or_default();
    let virtualization = virtualization::read(tree, &cpuinfo, probe);
    let cpu = cpu::read(tree, &cpuinfo);
    Facts {
        agent: VERSION,
        kernel: kernel(tree, probe),
        memory: memory::read(tree),
        clock: clock::read(tree, &cpu.flags, &virtualization, probe),
        cpu,
        governor: tree.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        mitigations: mitigations(tree),
        cgroup: control::read(tree),
        affinity: affinity(tree),
        pmu: pmu::read(tree, probe),
        mounts_read_only_root: root_is_read_only(tree),
        uptime_s: uptime_s(tree),
        virtualization,
    }
}

/// Seconds since boot (`/proc/uptime`, resolution 10 ms).
pub fn uptime_s(tree: &Tree) -> Option<f64> {
    tree.text("/proc/uptime")?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The memory facts that decide the size of STREAM's arrays.
pub fn memory(tree: &Tree) -> vtax_workloads::stream::Memory {
    let caches = cpu::read(tree, "").caches;
    vtax_workloads::stream::Memory {
        last_level_cache_bytes: caches.iter().filter_map(|cache| cache.size_bytes).max(),
        available_bytes: available_bytes(tree),
    }
}

/// Memory that a program can get: what the kernel calls available, within the group's limit.
pub fn available_bytes(tree: &Tree) -> Option<u64> {
    let machine = memory::read(tree).available_bytes;
    let group = control::read(tree).memory_limit_bytes;
    machine.into_iter().chain(group).min()
}

fn kernel(tree: &Tree, probe: &dyn Probe) -> Kernel {
    // gVisor has only the last of these files: `Linux version RELEASE VERSION`.
    let line = tree.text("/proc/version").unwrap_or_default();
    let parts = line
        .strip_prefix("Linux version ")
        .and_then(|rest| rest.split_once(" #"));
    let release = parts.map(|(release, _)| release.to_owned());
    let version = parts.map(|(_, version)| format!("#{version}"));
    Kernel {
        release: tree.text("/proc/sys/kernel/osrelease").or(release),
        version: tree.text("/proc/sys/kernel/version").or(version),
        machine: probe.machine(),
    }
}

fn mitigations(tree: &Tree) -> BTreeMap<String, String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let text = |name: String| Some((name.clone(), tree.text(&format!("{folder}/{name}"))?));
    tree.names(folder).into_iter().filter_map(text).collect()
}

/// Read from `/proc`, not `sched_getaffinity`, whose mask has a fixed size.
fn affinity(tree: &Tree) -> Option<Vec<usize>> {
    cpu_list::parse(field(
        &tree.text("/proc/self/status")?,
        "Cpus_allowed_list",
    )?)
    .ok()
}
