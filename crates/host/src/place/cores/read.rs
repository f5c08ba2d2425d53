//! What Linux says about cores: siblings, types, and numbers that show how fast each core is.

use std::path::Path;
use std::thread::spawn;

use vtax_sys::calls::processor::cpuid_leaf;
use vtax_sys::calls::scheduling::set_affinity;
use vtax_sys::cpu_list::parse;
use vtax_sys::tree::Tree;

use crate::place::cpus::folder;

/// A core: its hardware threads, sorted; at least one.
pub type Core = Vec<usize>;

/// A number that Linux has for each CPU; larger is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeedNumber {
    /// The file, below the folder of a CPU.
    pub file: &'static str,
    /// Is the number a clock, which says nothing about the work of a core in a cycle?
    pub clock: bool,
}

/// The sources of numbers, the most trusted first.
pub const SOURCES: [SpeedNumber; 5] = [
    SpeedNumber {
        file: "cpu_capacity",
        clock: false,
    },
    SpeedNumber {
        file: "acpi_cppc/highest_perf",
        clock: false,
    },
    SpeedNumber {
        file: "acpi_cppc/nominal_perf",
        clock: false,
    },
    SpeedNumber {
        file: "cpufreq/cpuinfo_max_freq",
        clock: true,
    },
    SpeedNumber {
        file: "cpufreq/base_frequency",
        clock: true,
    },
];

/// PMUs of hybrid x86, the fastest type first.
const TYPES: [&str; 3] = ["cpu_core", "cpu_atom", "cpu_lowpower"];

/// The type of each core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Types {
    /// How the types are known.
    pub source: &'static str,
    /// Each core's type; where `ordered`, the lowest number is the fastest type; `None`: not known.
    pub of: Vec<Option<u64>>,
    /// Does the order of types say which is faster?
    pub ordered: bool,
}

/// The cores that contain any of these CPUs.
pub fn cores(tree: &Tree, cpus: &[usize]) -> Vec<Core> {
    let mut found: Vec<Core> = Vec::new();
    for cpu in cpus {
        if found.iter().any(|core| core.contains(cpu)) {
            continue;
        }
        let lists = ["core_cpus_list", "thread_siblings_list"];
        let own = lists
            .iter()
            .find_map(|name| list(tree, &format!("{}/topology/{name}", folder(*cpu))))
            .filter(|all| all.contains(cpu))
            .unwrap_or_default();
        let free = |one: &usize| !found.iter().any(|core| core.contains(one));
        let mut core: Core = own
            .into_iter()
            .filter(|one| cpus.contains(one) && free(one))
            .collect();
        if core.is_empty() {
            core.push(*cpu);
        }
        found.push(core);
    }
    found
}

/// No core is slower than this share of the fastest one: a lower number is ignored.
const LEAST: f64 = 0.01;

/// The number of each core, the largest of its hardware threads' numbers; `None` where it is
/// missing, 0 or beyond belief.
pub fn numbers(tree: &Tree, source: SpeedNumber, cores: &[Core]) -> Vec<Option<f64>> {
    let of_cpu = |cpu: &usize| {
        let number = tree.number::<u32>(&format!("{}/{}", folder(*cpu), source.file));
        number.filter(|number| *number > 0)
    };
    let of_core = |core: &Core| core.iter().filter_map(of_cpu).max();
    let found: Vec<Option<f64>> = cores
        .iter()
        .map(|core| of_core(core).map(f64::from))
        .collect();
    let most = found.iter().flatten().copied().fold(0.0, f64::max);
    let believed = |number: &f64| *number >= LEAST * most;
    found
        .into_iter()
        .map(|number| number.filter(believed))
        .collect()
}

/// The types of cores, where the machine has several.
pub fn types(tree: &Tree, cores: &[Core]) -> Option<Types> {
    by_pmu(tree, cores)
        .or_else(|| by_part(tree, cores))
        .or_else(|| by_instruction(tree, cores))
        .filter(|types| several(&types.of))
}

fn several(of: &[Option<u64>]) -> bool {
    let mut known = of.iter().flatten();
    let first = known.next();
    known.any(|other| Some(other) != first)
}

/// Hybrid x86 has a PMU for each type. Atoms without a third-level cache, where others have one,
/// are low-power cores (Meteor Lake, Arrow Lake): a separate type.
fn by_pmu(tree: &Tree, cores: &[Core]) -> Option<Types> {
    let of_pmu = |name: &&str| {
        let folders = ["devices", "bus/event_source/devices"];
        folders
            .iter()
            .find_map(|folder| list(tree, &format!("/sys/{folder}/{name}/cpus")))
            .unwrap_or_default()
    };
    let all: Vec<Vec<usize>> = TYPES.iter().map(of_pmu).collect();
    let ranks = || all.iter().zip(0_u64..);
    let rank = |core: &Core| {
        let found = ranks().find(|(cpus, _)| core.iter().any(|cpu| cpus.contains(cpu)));
        // Two types for each PMU: with and without a third-level cache.
        found.map(|(_, rank)| rank * 2)
    };
    let mut of: Vec<Option<u64>> = cores.iter().map(rank).collect();
    if !several(&of) {
        return None;
    }
    let levels: Vec<Option<bool>> = cores.iter().map(|core| third_level(tree, core)).collect();
    let with: Vec<u64> = of
        .iter()
        .zip(&levels)
        .filter_map(|(rank, level)| rank.filter(|_| *level == Some(true)))
        .collect();
    for (rank, level) in of.iter_mut().zip(&levels) {
        if let Some(rank) = rank.as_mut().filter(|rank| with.contains(rank))
            && *level == Some(false)
        {
            *rank += 1;
        }
    }
    Some(Types {
        source: "the types cpu_core and cpu_atom",
        of,
        ordered: true,
    })
}

/// Does the core have a third-level cache? `None`: its caches are not known.
fn third_level(tree: &Tree, core: &Core) -> Option<bool> {
    let folder = format!("{}/cache", folder(*core.first()?));
    let names = tree.names(&folder);
    let levels: Vec<u32> = names
        .iter()
        .filter_map(|name| tree.number(&format!("{folder}/{name}/level")))
        .collect();
    levels
        .iter()
        .any(|level| *level >= 2)
        .then(|| levels.contains(&3))
}

/// arm64: the core's implementer and part (`MIDR_EL1` without its revision). Snapdragon 8 Elite's
/// two kinds differ by the variant alone.
fn by_part(tree: &Tree, cores: &[Core]) -> Option<Types> {
    const IMPLEMENTER_VARIANT_PART: u64 = 0xfff0_fff0;
    let part = |core: &Core| {
        let file = format!("{}/regs/identification/midr_el1", folder(*core.first()?));
        let text = tree.text(&file)?;
        let number = u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()?;
        (number > 0).then_some(number & IMPLEMENTER_VARIANT_PART)
    };
    let of: Vec<Option<u64>> = cores.iter().map(part).collect();
    several(&of).then_some(Types {
        source: "the processors' parts (MIDR)",
        of,
        ordered: false,
    })
}

/// CPUID's leaf 0x1A (Intel's manual, volume 2): EAX bits 24 to 31 are 0x40 for a core, 0x20 for an
/// atom. It describes the CPU that it runs on, so it is used only for this machine.
fn by_instruction(tree: &Tree, cores: &[Core]) -> Option<Types> {
    // Leaf 7, EDX bit 15: hybrid.
    const HYBRID: u32 = 1 << 15;
    if tree.path("/") != Path::new("/")
        || cpuid_leaf(0, 0)?.first()? < &0x1a
        || cpuid_leaf(7, 0)?.get(3)? & HYBRID == 0
    {
        return None;
    }
    let kind = |core: &Core| {
        let cpu = *core.first()?;
        let ask = move || {
            set_affinity(0, &[cpu]).ok()?;
            let eax = *cpuid_leaf(0x1a, 0)?.first()?;
            (eax >> 24 != 0).then_some(u64::from(u32::MAX - (eax >> 24)))
        };
        spawn(ask).join().ok()?
    };
    Some(Types {
        source: "CPUID",
        of: cores.iter().map(kind).collect(),
        ordered: true,
    })
}

/// For each core, the cores that share a second-level cache or a cluster with it, by their index in
/// `cores`.
pub fn mates(tree: &Tree, cores: &[Core], of: usize) -> Vec<usize> {
    let Some(cpu) = cores.get(of).and_then(|core| core.first()) else {
        return Vec::new();
    };
    let files = ["cache/index2/shared_cpu_list", "topology/cluster_cpus_list"];
    for file in files {
        let shared = list(tree, &format!("{}/{file}", folder(*cpu))).unwrap_or_default();
        let others: Vec<usize> = (0..)
            .zip(cores)
            .filter(|(place, core)| *place != of && core.iter().any(|cpu| shared.contains(cpu)))
            .map(|(place, _)| place)
            .collect();
        if !others.is_empty() {
            return others;
        }
    }
    Vec::new()
}

fn list(tree: &Tree, file: &str) -> Option<Vec<usize>> {
    tree.text(file).and_then(|text| parse(&text).ok())
}
