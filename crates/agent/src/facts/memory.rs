//! Main memory, from `/proc/meminfo` and `/sys`.

use serde::Serialize;

use vtax_sys::tree::{Tree, field};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// All memory that the kernel manages.
    pub total_bytes: Option<u64>,
    /// What a new program could get without swapping.
    pub available_bytes: Option<u64>,
    /// Swap space.
    pub swap_total_bytes: Option<u64>,
    /// The setting of transparent huge pages: always, madvise or never.
    pub transparent_hugepages: Option<String>,
    /// Reserved huge pages.
    pub hugepages_total: Option<u64>,
    /// Memory nodes.
    pub numa_nodes: Option<usize>,
}

pub(super) fn read(tree: &Tree) -> Memory {
    let meminfo = tree.text("/proc/meminfo").unwrap_or_default();
    Memory {
        total_bytes: bytes(&meminfo, "MemTotal"),
        available_bytes: bytes(&meminfo, "MemAvailable"),
        swap_total_bytes: bytes(&meminfo, "SwapTotal"),
        transparent_hugepages: tree
            .text("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| chosen(&text)),
        hugepages_total: field(&meminfo, "HugePages_Total").and_then(|text| text.parse().ok()),
        numa_nodes: numa_nodes(tree),
    }
}

/// `NAME:   123 kB`, where kB means 1024 bytes (proc(5)).
fn bytes(meminfo: &str, name: &str) -> Option<u64> {
    let number = field(meminfo, name)?.strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

fn numa_nodes(tree: &Tree) -> Option<usize> {
    let names = tree.names("/sys/devices/system/node");
    let number = |name: &str| {
        name.strip_prefix("node")
            .and_then(|rest| rest.parse::<u32>().ok())
    };
    let count = names.iter().filter(|name| number(name).is_some()).count();
    (count > 0).then_some(count)
}
