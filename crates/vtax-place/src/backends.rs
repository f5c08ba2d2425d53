//! The ways to make threads slower, which of them are possible here, and what each lacks.

use std::env;
use std::path::PathBuf;
use std::thread::spawn;

use serde::{Deserialize, Serialize};
use vtax_sys::calls::processor::cpuid_leaf;
use vtax_sys::calls::scheduling::{Policy, set_affinity, set_policy};
use vtax_sys::cgroup::locate::locate;
use vtax_sys::cgroup::quota;
use vtax_sys::tree::Tree;

use crate::cpus;

/// A way to make threads slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// A lower clock of one CPU.
    Cpufreq,
    /// The slower cores of a hybrid processor.
    CoreType,
    /// A quota of CPU time.
    Quota,
    /// A real-time thread that takes the rest of the time of a CPU.
    Hog,
    /// A cap of Xen's credit2 scheduler on its domain 0.
    XenCap,
}

/// A way, and whether it is possible here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Possibility {
    /// Which.
    pub name: Backend,
    /// Can it be used here?
    pub possible: bool,
    /// Why not.
    pub reason: Option<String>,
    /// What it does not reproduce of a slow core.
    pub does_not: &'static str,
}

impl Backend {
    /// All of them, those first that are nearest to a slow core.
    pub const ALL: [Self; 5] = [
        Self::CoreType,
        Self::Cpufreq,
        Self::Quota,
        Self::Hog,
        Self::XenCap,
    ];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpufreq => "cpufreq",
            Self::CoreType => "core-type",
            Self::Quota => "quota",
            Self::Hog => "hog",
            Self::XenCap => "xen-cap",
        }
    }

    /// What it does not reproduce of a slow core.
    pub fn does_not(self) -> &'static str {
        match self {
            Self::Cpufreq => "caches and width of a small core: those of the fast core stay",
            Self::CoreType => "any speed but the one that the slow cores have",
            Self::Quota => {
                "slowness below the quota: until it is used up nothing is slower, then the thread \
                 stands still for milliseconds; no instruction takes longer, memory keeps its speed"
            }
            Self::Hog => {
                "slow instructions: the thread stands still for up to a period, whether it is busy \
                 or not; no instruction takes longer, memory keeps its speed"
            }
            Self::XenCap => {
                "slowness below the cap: until it is used up nothing is slower; no instruction \
                 takes longer, memory keeps its speed; it holds the whole of domain 0"
            }
        }
    }

    /// Why it cannot be used here; `None`: it can.
    pub fn obstacle(self, tree: &Tree) -> Option<String> {
        match self {
            Self::Cpufreq => no_cpufreq(tree),
            Self::CoreType => no_core_types(tree),
            Self::Quota => quota::obstacle(tree),
            Self::Hog => no_real_time(tree),
            Self::XenCap => no_xen(tree),
        }
    }
}

/// All ways, and whether each is possible here.
pub fn all(tree: &Tree) -> Vec<Possibility> {
    let possibility = |name: Backend| {
        let reason = name.obstacle(tree);
        Possibility {
            name,
            possible: reason.is_none(),
            reason,
            does_not: name.does_not(),
        }
    };
    Backend::ALL.map(possibility).into()
}

fn no_cpufreq(tree: &Tree) -> Option<String> {
    let online = cpus::online(tree);
    let with = |cpu: &usize| tree.exists(&format!("{}/cpufreq", cpus::folder(*cpu)));
    let cpu = match online.iter().find(|cpu| with(cpu)) {
        Some(cpu) => *cpu,
        None => return Some("this machine has no cpufreq: its clock is not Linux's to set".into()),
    };
    let file = format!("{}/cpufreq/scaling_max_freq", cpus::folder(cpu));
    (!writable(&tree.path(&file))).then(|| format!("{file} may not be written; run it as root"))
}

fn writable(path: &std::path::Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok()
}

fn no_core_types(tree: &Tree) -> Option<String> {
    core_classes(tree)
        .is_empty()
        .then(|| "all cores of this machine are of one type".into())
}

/// CPUs of each type, the fastest first; none where all are alike.
///
/// By `cpu_capacity`, else by the PMUs of hybrid processors, else by CPUID's leaf 0x1A.
pub fn core_classes(tree: &Tree) -> Vec<Vec<usize>> {
    let online = cpus::online(tree);
    let capacity = |cpu: usize| tree.number::<u32>(&format!("{}/cpu_capacity", cpus::folder(cpu)));
    let by_capacity = classes(&online, capacity);
    if by_capacity.len() > 1 {
        return by_capacity;
    }
    let of_pmu = |name: &str| {
        let text = tree.text(&format!("/sys/bus/event_source/devices/{name}/cpus"));
        text.and_then(|text| vtax_sys::cpu_list::parse(&text).ok())
    };
    if let (Some(fast), Some(slow)) = (of_pmu("cpu_core"), of_pmu("cpu_atom")) {
        return vec![fast, slow];
    }
    if !is_hybrid() {
        return Vec::new();
    }
    let by_instruction = classes(&online, core_kind);
    if by_instruction.len() > 1 {
        by_instruction
    } else {
        Vec::new()
    }
}

/// CPUs by a number that all of them have, the highest first.
fn classes(cpus: &[usize], number: impl Fn(usize) -> Option<u32>) -> Vec<Vec<usize>> {
    let numbers: Option<Vec<(u32, usize)>> =
        cpus.iter().map(|cpu| Some((number(*cpu)?, *cpu))).collect();
    let mut found: Vec<(u32, Vec<usize>)> = Vec::new();
    for (number, cpu) in numbers.unwrap_or_default() {
        match found.iter_mut().find(|(known, _)| *known == number) {
            Some((_, cpus)) => cpus.push(cpu),
            None => found.push((number, vec![cpu])),
        }
    }
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, cpus)| cpus).collect()
}

/// Intel's manual, volume 2, CPUID: leaf 7, EDX bit 15.
fn is_hybrid() -> bool {
    const HYBRID: u32 = 1 << 15;
    cpuid_leaf(0, 0).is_some_and(|found| found[0] >= 0x1a)
        && cpuid_leaf(7, 0).is_some_and(|found| found[3] & HYBRID != 0)
}

/// The same, leaf 0x1A: EAX bits 24 to 31 are 0x40 for a core, 0x20 for an atom. It answers for the
/// CPU that it runs on.
fn core_kind(cpu: usize) -> Option<u32> {
    let ask = move || {
        set_affinity(0, &[cpu]).ok()?;
        cpuid_leaf(0x1a, 0).map(|found| found[0] >> 24)
    };
    spawn(ask).join().ok()?
}

/// Asked of a thread, which ends with it.
fn no_real_time(tree: &Tree) -> Option<String> {
    let asked = spawn(|| set_policy(0, Policy::Fifo(1))).join().ok()?;
    let errno = asked.err()?;
    let group = locate(tree, "cpu")
        .filter(|found| tree.number::<i64>(&format!("{}/cpu.rt_runtime_us", found.own)) == Some(0));
    Some(match group {
        Some(found) => format!(
            "{}/cpu.rt_runtime_us is 0; give it real-time time",
            found.own
        ),
        None => format!("SCHED_FIFO is refused: {}; run it as root", errno.desc()),
    })
}

fn no_xen(tree: &Tree) -> Option<String> {
    let control = tree.text("/proc/xen/capabilities");
    if !control.is_some_and(|text| text.contains("control_d")) {
        return Some("this is not domain 0 of Xen".into());
    }
    xl().is_none().then(|| "xl is not on the PATH".into())
}

/// Xen's tool.
pub fn xl() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join("xl"))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree::at(root.path());
        (root, tree)
    }

    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-2\n");

    #[test]
    fn core_types_by_capacity() {
        let file = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
        let names = [file(0), file(1), file(2)];
        let (_root, tree) = machine(&[
            ONLINE,
            (&names[0], "446"),
            (&names[1], "1024"),
            (&names[2], "446"),
        ]);
        assert_eq!(core_classes(&tree), [vec![1], vec![0, 2]]);
        assert_eq!(Backend::CoreType.obstacle(&tree), None);
    }

    #[test]
    fn core_types_by_pmu() {
        let (_root, tree) = machine(&[
            ONLINE,
            ("sys/bus/event_source/devices/cpu_core/cpus", "0-1\n"),
            ("sys/bus/event_source/devices/cpu_atom/cpus", "2\n"),
        ]);
        assert_eq!(core_classes(&tree), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn what_is_not_there_has_a_reason() {
        let (_root, tree) = machine(&[ONLINE]);
        let reason = |backend: Backend| backend.obstacle(&tree).unwrap();
        assert!(reason(Backend::Cpufreq).contains("no cpufreq"));
        assert!(reason(Backend::Quota).contains("cpu control group"));
        assert!(reason(Backend::XenCap).contains("domain 0"));
        let names: Vec<&str> = Backend::ALL.iter().map(|one| one.name()).collect();
        let json = serde_json::to_value(Backend::ALL).unwrap();
        assert_eq!(json, serde_json::json!(names));
    }
}
