//! Descriptions of machines: TLBs, walk caches, caches, and what exits cost.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::model::address::{PageSize, TableFormat};

/// A machine. All latencies and costs are in cycles of the machine's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The name on the command line.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Clock in hertz: turns cycles into seconds.
    pub clock_hz: f64,
    /// The format of the host's tables (nested and shadow).
    #[serde(default)]
    pub host_tables: TableFormat,
    pub tlb: Tlbs,
    /// The structures that shorten a walk.
    #[serde(default)]
    pub walk: WalkCaches,
    /// The cache levels a page walker reads through, nearest first; at most four.
    #[serde(default)]
    pub caches: Vec<CacheLevel>,
    pub memory_latency: u32,
    /// What exits and the VMM's work cost.
    pub costs: Costs,
    /// Where each number comes from: a dotted path of a field or a table, and its source.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// Data TLBs. Instruction TLBs are not modelled: the DAV2M paper's metrics are data TLB misses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlbs {
    /// Entries carry the guest's ASID/VPID, so an exit does not empty the TLB.
    pub tagged: bool,
    /// Entries carry an address-space tag (PCID), so a CR3 load may preserve them.
    pub pcid: bool,
    /// First level: one array or one per page size.
    pub l1: Vec<TlbArray>,
    /// Second level; may be empty.
    #[serde(default)]
    pub l2: Vec<TlbArray>,
    /// Cycles of a hit in the second level.
    #[serde(default)]
    pub l2_latency: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbArray {
    pub pages: Vec<PageSize>,
    pub entries: u32,
    /// Associativity; equal to `entries` for a fully associative array.
    pub ways: u32,
    /// Which entry of a set is replaced.
    #[serde(default)]
    pub replacement: Replacement,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The least recently used.
    #[default]
    Lru,
    /// Tree pseudo-LRU; needs a power of two of ways.
    TreePlru,
    /// Random, from the simulation's seed.
    Random,
}

/// The structures that let a walk skip references. All may be absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCaches {
    /// Guest dimension, the only one natively and under shadow paging: from an address prefix to
    /// the table of the next level.
    #[serde(default)]
    pub page_walk: Vec<WalkCache>,
    /// From a guest frame of the walk (tables and the final page) to its host frame.
    #[serde(default)]
    pub nested_tlb: Option<WalkCache>,
    /// Host dimension: from a guest physical prefix to the host table of the next level.
    #[serde(default)]
    pub nested_walk: Vec<WalkCache>,
    /// Cycles of a hit in any of them.
    #[serde(default)]
    pub latency: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCache {
    /// Levels whose entries it holds (2: an entry of the level-2 table, which names a level-1
    /// table); no two caches of one dimension hold the same level. Empty in a nested TLB.
    #[serde(default)]
    pub levels: Vec<u8>,
    pub entries: u32,
    pub ways: u32,
}

/// One cache level as the page walker sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLevel {
    pub bytes: u64,
    pub ways: u32,
    /// Bytes of a line.
    pub line: u32,
    /// Cycles of a hit.
    pub latency: u32,
    /// The number of ways, 1 to `ways`, that page-table lines can keep against the program's own
    /// data. The model does not follow data lines; this number represents their pressure.
    pub pte_ways: u32,
}

/// Costs in cycles. The VMM's work comes on top of `exit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Leaving the guest and entering it again, hardware and the VMM's common path.
    pub exit: u32,
    /// Nested: map a host frame after a fault.
    pub nested_fault: u32,
    /// Shadow: walk the guest's tables and fill an entry.
    pub shadow_fill: u32,
    /// Shadow: find that a fault is the guest's own and inject it.
    pub reflect_fault: u32,
    /// Shadow: decode and emulate one write to a protected table.
    pub table_write: u32,
    /// Shadow: let a leaf table go unsync.
    pub unsync: u32,
    /// Shadow: bring one unsync table back in step: fixed part.
    pub sync_table: u32,
    /// Shadow: the same, for each entry that changed.
    pub sync_entry: u32,
    /// Shadow: take one shadow page down.
    pub zap: u32,
    /// Shadow: handle INVLPG.
    pub invlpg: u32,
    /// Shadow: handle a CR3 load whose root is cached.
    pub load_cr3: u32,
    /// Shadow: handle a CR3 load whose root has to be built.
    pub build_root: u32,
    /// Handle an exit that the mode does not decide.
    pub other: u32,
    /// Read the counters and run the policy at an overflow.
    pub policy: u32,
    /// Change the mode from shadow to nested (without refill; the refill is simulated).
    pub switch_to_nested: u32,
    /// Change the mode from nested to shadow.
    pub switch_to_shadow: u32,
    /// Guest kernel: a page fault, from exception to IRET, without table walks.
    pub guest_fault: u32,
    /// Guest kernel: a system call that does nothing.
    pub system_call: u32,
    /// Guest kernel: a context switch.
    pub context_switch: u32,
    /// Guest kernel: a CR3 load, in all modes.
    pub guest_load_cr3: u32,
    /// Guest kernel: INVLPG, natively and under nested paging.
    pub guest_invlpg: u32,
}

impl Machine {
    /// Parses a description and checks it.
    ///
    /// Fails when the text is not TOML or is longer than 1 MiB, and, naming the field, when a field
    /// is unknown, missing or wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let machine: Self = crate::description::parse(text)?;
        machine.check()?;
        Ok(machine)
    }
}

impl CacheLevel {
    /// Number of sets; a power of two once checked.
    pub fn sets(&self) -> u64 {
        let set_bytes = u64::from(self.line) * u64::from(self.ways);
        self.bytes.checked_div(set_bytes).unwrap_or(0)
    }
}
