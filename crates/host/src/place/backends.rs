//! The ways to make threads slower, which of them are possible here, and what each lacks.

use std::thread::spawn;

use serde::{Deserialize, Serialize};
use vtax_sys::calls::scheduling::{Policy, set_policy};
use vtax_sys::cgroup::locate::locate;
use vtax_sys::cgroup::quota;
use vtax_sys::tree::Tree;

use crate::place::cores::Cores;
use crate::place::cpus;
use crate::place::xen_cap;

/// A way to make threads slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// A lower clock of one CPU.
    Cpufreq,
    /// The slower cores of a hybrid processor.
    CoreType,
    /// An emulated CPU that waits after each piece of work.
    Emulator,
    /// A quota of CPU time.
    Quota,
    /// A real-time thread that takes the rest of the time of a CPU.
    Hog,
    /// A cap of Xen's credit2 scheduler on its domain 0.
    XenCap,
}

/// A way to slow threads, and whether it is possible on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Possibility {
    pub name: Backend,
    /// Can this way be used on this machine?
    pub possible: bool,
    /// Why it cannot be used.
    pub reason: Option<String>,
    /// What this way does not reproduce of a slow core.
    pub does_not: &'static str,
}

impl Backend {
    /// All ways, the nearest to a slow core first.
    pub const ALL: [Self; 6] = [
        Self::CoreType,
        Self::Cpufreq,
        Self::Emulator,
        Self::Quota,
        Self::Hog,
        Self::XenCap,
    ];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpufreq => "cpufreq",
            Self::CoreType => "core-type",
            Self::Emulator => "emulator",
            Self::Quota => "quota",
            Self::Hog => "hog",
            Self::XenCap => "xen-cap",
        }
    }

    /// What this way does not reproduce of a slow core.
    pub fn does_not(self) -> &'static str {
        match self {
            Self::Cpufreq => "caches and width of a small core: those of the fast core stay",
            Self::CoreType => "any speed but the one that the slow cores have",
            Self::Emulator => {
                "caches and width of a small core; all speeds are the emulator's, which has neither"
            }
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

    /// Why this way cannot be used on this machine; `None`: it can.
    pub fn obstacle(self, tree: &Tree) -> Option<String> {
        match self {
            Self::Cpufreq => no_cpufreq(tree),
            Self::CoreType => no_core_types(tree),
            Self::Emulator => no_emulator(tree),
            Self::Quota => quota::obstacle(tree),
            Self::Hog => no_real_time(tree),
            Self::XenCap => no_xen(tree),
        }
    }
}

/// All ways, and whether each is possible on this machine.
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
    let found = Cores::of(tree);
    (!found.differ()).then(|| "all cores of this machine are of one kind".into())
}

/// The speed of an emulated CPU, in percent (docs/environments.md).
pub fn emulated_speed(cpu: usize) -> String {
    format!("/run/vtax/work/speeds/cpu{cpu}")
}

fn no_emulator(tree: &Tree) -> Option<String> {
    let file = emulated_speed(0);
    if !tree.exists(&file) {
        return Some("this is no host that vtax emulates with `slow-cores`".into());
    }
    (!writable(&tree.path(&file))).then(|| format!("{file} may not be written; run it as root"))
}

/// The question is asked for a thread that ends with it.
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
    xen_cap::xl()
        .is_none()
        .then(|| "xl is not on the PATH".into())
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
    fn the_slower_kind_of_cores_is_a_way() {
        let file = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
        let names = [file(0), file(1), file(2)];
        let (_root, tree) = machine(&[
            ONLINE,
            (&names[0], "446"),
            (&names[1], "1024"),
            (&names[2], "446"),
        ]);
        assert_eq!(Backend::CoreType.obstacle(&tree), None);
    }

    #[test]
    fn what_is_not_there_has_a_reason() {
        let (_root, tree) = machine(&[ONLINE]);
        let reason = |backend: Backend| backend.obstacle(&tree).unwrap();
        assert!(reason(Backend::Cpufreq).contains("no cpufreq"));
        assert!(reason(Backend::Emulator).contains("slow-cores"));
        assert!(reason(Backend::Quota).contains("cpu control group"));
        assert!(reason(Backend::XenCap).contains("domain 0"));
        let names: Vec<&str> = Backend::ALL.iter().map(|one| one.name()).collect();
        let json = serde_json::to_value(Backend::ALL).unwrap();
        assert_eq!(json, serde_json::json!(names));
    }
}
