//! Processors and their caches, from `/proc/cpuinfo` and `/sys/devices/system/cpu`.

use serde::Serialize;

use vtax_sys::cpu_list;
use vtax_sys::tree::{Tree, field};

const FOLDER: &str = "/sys/devices/system/cpu";

/// The processors; the first one represents all where they are described one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Such as `GenuineIntel`.
    pub vendor: Option<String>,
    pub model: Option<String>,
    /// CPUID family; on arm64 the architecture's version.
    pub family: Option<u32>,
    /// CPUID model; on arm64 the part.
    pub model_number: Option<u32>,
    /// CPUID stepping; on arm64 the revision.
    pub stepping: Option<u32>,
    pub microcode: Option<String>,
    /// CPUs that run.
    pub online: Option<usize>,
    /// CPUs that could be added.
    pub possible: Option<usize>,
    /// Hardware threads of each core.
    pub threads_per_core: Option<usize>,
    /// What the kernel's switch for hardware threads says.
    pub smt: Option<String>,
    /// Features, sorted.
    pub flags: Vec<String>,
    /// The caches of CPU 0.
    pub caches: Vec<Cache>,
}

/// One cache of CPU 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// 1 is the level nearest to the core.
    pub level: Option<u32>,
    /// Data, Instruction or Unified.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub size_bytes: Option<u64>,
    /// The CPUs that share it, as a list.
    pub shared_by: Option<String>,
}

pub(super) fn read(tree: &Tree, cpuinfo: &str) -> Cpu {
    let text = |name| {
        field(cpuinfo, name)
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
    };
    let number = |name| field(cpuinfo, name).and_then(number);
    // The second names are those of arm64, which has no model name.
    Cpu {
        vendor: text("vendor_id").or_else(|| field(cpuinfo, "CPU implementer").map(implementer)),
        model: text("model name"),
        family: number("cpu family").or_else(|| number("CPU architecture")),
        model_number: number("model").or_else(|| number("CPU part")),
        stepping: number("stepping").or_else(|| number("CPU revision")),
        microcode: text("microcode"),
        online: count(tree, "online").or_else(|| processors(cpuinfo)),
        possible: count(tree, "possible"),
        threads_per_core: count(tree, "cpu0/topology/thread_siblings_list"),
        smt: tree.text(&format!("{FOLDER}/smt/control")),
        flags: flags(cpuinfo),
        caches: caches(tree),
    }
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The vendor of an arm64 processor (Arm Architecture Reference Manual, `MIDR_EL1`); the code
/// itself where the vendor is not listed.
fn implementer(code: &str) -> String {
    const KNOWN: [(&str, &str); 8] = [
        ("0x41", "ARM"),
        ("0x43", "Cavium"),
        ("0x46", "Fujitsu"),
        ("0x48", "HiSilicon"),
        ("0x4e", "NVIDIA"),
        ("0x51", "Qualcomm"),
        ("0x61", "Apple"),
        ("0xc0", "Ampere"),
    ];
    let known = KNOWN.iter().find(|(known, _)| *known == code);
    known.map_or(code, |(_, name)| name).to_owned()
}

fn count(tree: &Tree, file: &str) -> Option<usize> {
    let list = tree.text(&format!("{FOLDER}/{file}"))?;
    cpu_list::parse(&list).ok().map(|cpus| cpus.len())
}

fn processors(cpuinfo: &str) -> Option<usize> {
    let count = cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    (count > 0).then_some(count)
}

fn flags(cpuinfo: &str) -> Vec<String> {
    let text = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features"));
    let text = text.unwrap_or_default();
    let mut flags: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    flags.sort();
    flags.dedup();
    flags
}

fn caches(tree: &Tree) -> Vec<Cache> {
    let folder = format!("{FOLDER}/cpu0/cache");
    let names = tree.names(&folder);
    let indices = names.iter().filter(|name| name.starts_with("index"));
    indices
        .map(|index| Cache {
            level: tree.number(&format!("{folder}/{index}/level")),
            kind: tree.text(&format!("{folder}/{index}/type")),
            size_bytes: tree
                .text(&format!("{folder}/{index}/size"))
                .and_then(|text| bytes(&text)),
            shared_by: tree.text(&format!("{folder}/{index}/shared_cpu_list")),
        })
        .collect()
}

/// `48K` is how the kernel writes cache sizes; M is accepted as well.
fn bytes(text: &str) -> Option<u64> {
    let scaled = |digits: &str, scale: u64| digits.parse::<u64>().ok()?.checked_mul(scale);
    if let Some(digits) = text.strip_suffix('K') {
        return scaled(digits, 1 << 10);
    }
    match text.strip_suffix('M') {
        Some(digits) => scaled(digits, 1 << 20),
        None => scaled(text, 1),
    }
}
