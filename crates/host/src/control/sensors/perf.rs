//! Hardware counts of guests: one group of events for each thread that is a virtual CPU.
//!
//! Following threads, rather than whole CPUs, leaves out what this host's kernel does for others,
//! so the cycles in the kernel belong to the guest's exits.

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
use perf_event_open_sys::bindings as perf;
use vtax_sys::tree::Tree;

use super::perf_group::{Event, Group, Level};
use super::{CountedSource, Quantity, Sensor, Values};

const MACHINES: &str = "/sys/kernel/debug/kvm";
/// Windows between two searches for virtual CPUs of processes that are known already.
const SEARCH_WINDOWS: u32 = 16;

/// Events that have no name in the kernel, as `perf_event_attr.config` of raw events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// Cycles in page walks for loads: 0x1008 (`DTLB_LOAD_MISSES.WALK_ACTIVE`) on Skylake's cores.
    /// AMD has no such event.
    pub walk_cycles: Option<u64>,
    /// Walks of loads that missed the TLB, instead of the kernel's generic event.
    pub tlb_misses: Option<u64>,
}

impl Events {
    /// The events, and the quantity that each adds to: both counts of cycles are added up.
    fn list(self) -> Vec<(Quantity, Event)> {
        let hardware = |config: u32, level| Event {
            kind: perf::PERF_TYPE_HARDWARE,
            config: config.into(),
            level,
        };
        let raw = |config| Event {
            kind: perf::PERF_TYPE_RAW,
            config,
            level: Level::Guest,
        };
        // perf_event_open(2): the operation is in the second byte, the result in the third.
        let cache = perf::PERF_COUNT_HW_CACHE_DTLB
            | (perf::PERF_COUNT_HW_CACHE_OP_READ << 8)
            | (perf::PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
        let misses = Event {
            kind: perf::PERF_TYPE_HW_CACHE,
            config: cache.into(),
            level: Level::Guest,
        };
        let cycles = perf::PERF_COUNT_HW_CPU_CYCLES;
        let mut list = vec![
            (
                Quantity::Instructions,
                hardware(perf::PERF_COUNT_HW_INSTRUCTIONS, Level::Guest),
            ),
            (Quantity::Cycles, hardware(cycles, Level::Guest)),
            (Quantity::Cycles, hardware(cycles, Level::Kernel)),
            (Quantity::TlbMisses, self.tlb_misses.map_or(misses, raw)),
        ];
        list.extend(
            self.walk_cycles
                .map(|config| (Quantity::WalkCycles, raw(config))),
        );
        list
    }
}

/// The virtual CPUs of all guests.
#[derive(Debug)]
pub struct Perf {
    tree: Tree,
    events: Vec<(Quantity, Event)>,
    /// Groups by process and thread.
    groups: BTreeMap<(i32, i32), Group>,
    processes: BTreeSet<i32>,
    until_search: u32,
}

impl Perf {
    /// The virtual CPUs of this machine's guests.
    pub fn new(tree: Tree, events: Events) -> Self {
        Self {
            tree,
            events: events.list(),
            groups: BTreeMap::new(),
            processes: BTreeSet::new(),
            until_search: 0,
        }
    }

    /// Processes with a virtual machine.
    fn running(&self) -> BTreeSet<i32> {
        let names = self.tree.names(MACHINES).into_iter();
        names
            .filter_map(|name| name.split_once('-')?.0.parse().ok())
            .collect()
    }

    fn search(&mut self) -> Result<(), String> {
        let running = self.running();
        self.until_search = self.until_search.saturating_sub(1);
        if running == self.processes && self.until_search > 0 {
            return Ok(());
        }
        let threads: BTreeSet<(i32, i32)> = running
            .iter()
            .flat_map(|pid| vcpus(&self.tree, *pid).map(|tid| (*pid, tid)))
            .collect();
        self.groups.retain(|key, _| threads.contains(key));
        let events: Vec<Event> = self.events.iter().map(|(_, event)| *event).collect();
        for key in threads {
            if self.groups.contains_key(&key) {
                continue;
            }
            match Group::open(key.1, &events) {
                // The process has ended meanwhile.
                Err(Errno::ESRCH) => {}
                Err(errno) => return Err(explain(errno)),
                Ok(group) => drop(self.groups.insert(key, group)),
            }
        }
        self.processes = running;
        self.until_search = SEARCH_WINDOWS;
        Ok(())
    }
}

impl Sensor for Perf {
    fn name(&self) -> &'static str {
        "perf"
    }

    fn read(&mut self) -> Result<Vec<CountedSource>, String> {
        self.search()?;
        let mut sources = Vec::with_capacity(self.groups.len());
        let mut lost = None;
        for ((pid, tid), group) in &mut self.groups {
            match group.read() {
                Ok(values) => sources.push(source(*pid, *tid, &self.events, &values)),
                Err(reason) => lost = Some(reason),
            }
        }
        if let Some(reason) = lost {
            // A pinned group that lost its counters never gets them back.
            self.groups.clear();
            self.until_search = 0;
            return Err(reason);
        }
        Ok(sources)
    }

    fn let_go(&mut self) {
        self.groups.clear();
        self.processes.clear();
    }
}

fn source(pid: i32, tid: i32, events: &[(Quantity, Event)], values: &[u64]) -> CountedSource {
    let mut counts = Values::default();
    for ((quantity, _), value) in events.iter().zip(values) {
        let sum = counts.get(*quantity).unwrap_or(0_u64);
        counts.set(*quantity, sum.saturating_add(*value));
    }
    CountedSource {
        name: format!("{pid}/{tid}"),
        counts,
        publication: None,
    }
}

/// The threads of a process that have been in a guest (proc(5), field 43 of stat).
fn vcpus(tree: &Tree, pid: i32) -> impl Iterator<Item = i32> {
    let in_guest = move |tid: &i32| {
        let text = tree.text(&format!("/proc/{pid}/task/{tid}/stat"));
        let field = text.as_deref().and_then(|text| {
            let (_, rest) = text.rsplit_once(')')?;
            rest.split_ascii_whitespace().nth(43 - 3)?.parse().ok()
        });
        field.is_some_and(|ticks: u64| ticks > 0)
    };
    tree.threads(pid).into_iter().filter(in_guest)
}

fn explain(errno: Errno) -> String {
    let why = match errno {
        Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV => {
            "this processor, or the machine that this host runs in, shows no such counters"
        }
        Errno::EACCES | Errno::EPERM => "perf events are for root here",
        Errno::EINVAL | Errno::ENOSPC => {
            "the processor cannot count all events at the same time; leave walk_cycles out"
        }
        _ => return errno.desc().to_owned(),
    };
    format!("{} ({why})", errno.desc())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn virtual_cpus_are_the_threads_that_were_in_a_guest() {
        let root = tempfile::tempdir().unwrap();
        let put = |tid: i32, ticks: u64| {
            let folder = root.path().join(format!("proc/88/task/{tid}"));
            fs::create_dir_all(&folder).unwrap();
            let stat = format!("{tid} (CPU 0) KVM) S 1 {} {ticks} 0 9", "0 ".repeat(38));
            fs::write(folder.join("stat"), stat).unwrap();
        };
        put(88, 0);
        put(89, 12);
        put(90, 7);
        let tree = Tree::at(root.path());
        assert_eq!(vcpus(&tree, 88).collect::<Vec<_>>(), [89, 90]);
        assert_eq!(vcpus(&tree, 99).count(), 0);
    }

    #[test]
    fn both_counts_of_cycles_are_one_quantity() {
        let events = Events {
            walk_cycles: Some(0x1008),
            tlb_misses: None,
        };
        let list = events.list();
        let source = source(1, 2, &list, &[1000, 3000, 500, 7, 90]);
        assert_eq!(source.counts.get(Quantity::Cycles), Some(3500));
        assert_eq!(source.counts.get(Quantity::WalkCycles), Some(90));
        assert_eq!(source.counts.get(Quantity::Instructions), Some(1000));
        assert_eq!(Events::default().list().len(), 4);
    }
}
