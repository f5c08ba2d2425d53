//! Checks whether a machine can exist, for [`Machine::parse`].

use super::{CacheLevel, Machine, Replacement, TlbArray, WalkCache};
use crate::error::ModelError;
use crate::model::address::{MAX_LEVELS, PageSize};
use crate::model::counters::WALK_SOURCES;

/// The most entries of a TLB or a walk cache; real ones have a few thousand.
const MOST_ENTRIES: u32 = 1 << 20;
/// The most lines of a cache level: 1 GiB of 64-byte lines, and at most 256 MiB of the model's
/// memory.
const MOST_LINES: u64 = 1 << 24;
const MOST_WAYS: u32 = 64;
/// The shortest line: one entry of a page table.
const SHORTEST_LINE: u32 = 8;
/// The longest line: a page, the unit in which page tables are placed.
const LONGEST_LINE: u32 = 4096;
/// The fastest clock in hertz, far beyond any machine.
const FASTEST_HZ: f64 = 1e12;

impl Machine {
    /// Fails when such a machine cannot exist; names the field.
    pub fn check(&self) -> Result<(), ModelError> {
        require(!self.name.trim().is_empty(), "name", "must not be empty")?;
        // Written so that NaN gives false.
        let running = self.clock_hz >= 1.0 && self.clock_hz <= FASTEST_HZ;
        require(running, "clock_hz", "must be 1 to 1e12 hertz")?;
        self.check_tlbs()?;
        self.check_walk_caches()?;
        self.check_caches()
    }

    fn check_tlbs(&self) -> Result<(), ModelError> {
        let first = &self.tlb.l1;
        let reason = "a machine needs at least one first-level TLB";
        require(!first.is_empty(), "tlb.l1", reason)?;
        check_arrays("tlb.l1", first)?;
        check_arrays("tlb.l2", &self.tlb.l2)?;
        let small = first
            .iter()
            .any(|array| array.pages.contains(&PageSize::K4));
        require(small, "tlb.l1", "no array holds 4K pages")
    }

    fn check_walk_caches(&self) -> Result<(), ModelError> {
        let walk = &self.walk;
        check_dimension("walk.page_walk", &walk.page_walk)?;
        check_dimension("walk.nested_walk", &walk.nested_walk)?;
        let Some(tlb) = &walk.nested_tlb else {
            return Ok(());
        };
        check_sets("walk.nested_tlb", tlb.entries, tlb.ways)?;
        let reason = "a nested TLB holds frames, not levels";
        require(tlb.levels.is_empty(), "walk.nested_tlb.levels", reason)
    }

    fn check_caches(&self) -> Result<(), ModelError> {
        let fits = self.caches.len() < WALK_SOURCES;
        require(fits, "caches", "at most four levels are modelled")?;
        let mut nearer = 0;
        for (at, level) in self.caches.iter().enumerate() {
            level.check(&format!("caches[{at}]"))?;
            let reason = "must not be less than that of the level before";
            let rising = level.latency >= nearer;
            require(rising, &format!("caches[{at}].latency"), reason)?;
            nearer = level.latency;
        }
        let reason = "must not be less than that of the last cache";
        require(self.memory_latency >= nearer, "memory_latency", reason)
    }
}

impl CacheLevel {
    fn check(&self, path: &str) -> Result<(), ModelError> {
        let field = |name: &str| format!("{path}.{name}");
        let lines = SHORTEST_LINE..=LONGEST_LINE;
        require(
            self.line.is_power_of_two() && lines.contains(&self.line),
            &field("line"),
            "must be a power of two of 8 to 4096 bytes",
        )?;
        require(
            (1..=MOST_WAYS).contains(&self.ways),
            &field("ways"),
            "must be 1 to 64",
        )?;
        require(
            (1..=self.ways).contains(&self.pte_ways),
            &field("pte_ways"),
            "must be 1 to the number of ways",
        )?;
        let set_bytes = u64::from(self.line) * u64::from(self.ways);
        require(
            self.bytes.is_multiple_of(set_bytes) && self.sets().is_power_of_two(),
            &field("bytes"),
            "must be line x ways x a power of two of sets",
        )?;
        require(
            self.bytes / u64::from(self.line) <= MOST_LINES,
            &field("bytes"),
            "must be at most 16777216 lines",
        )
    }
}

fn check_arrays(path: &str, arrays: &[TlbArray]) -> Result<(), ModelError> {
    for (at, array) in arrays.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let pages = format!("{path}.pages");
        require(!array.pages.is_empty(), &pages, "holds no page size")?;
        check_sets(&path, array.entries, array.ways)?;
        require(
            array.replacement != Replacement::TreePlru || array.ways.is_power_of_two(),
            &format!("{path}.ways"),
            "tree pseudo-LRU needs a power of two of ways",
        )?;
    }
    for size in PageSize::ALL {
        let holding = arrays.iter().flat_map(|array| &array.pages);
        let once = holding.filter(|&&held| held == size).count() <= 1;
        let name = match size {
            PageSize::K4 => "4K",
            PageSize::M2 => "2M",
            PageSize::G1 => "1G",
        };
        require(once, path, &format!("{name} pages are held twice"))?;
    }
    Ok(())
}

/// Checks the walk caches of one dimension. They may have room for levels that the tables in use
/// lack: a processor with five-level caches runs hosts and guests with four levels.
fn check_dimension(path: &str, caches: &[WalkCache]) -> Result<(), ModelError> {
    let mut seen = Vec::new();
    for (at, cache) in caches.iter().enumerate() {
        let path = format!("{path}[{at}]");
        check_sets(&path, cache.entries, cache.ways)?;
        let field = format!("{path}.levels");
        require(!cache.levels.is_empty(), &field, "must name a level")?;
        for &level in &cache.levels {
            let exists = (2..=MAX_LEVELS).contains(&usize::from(level));
            require(exists, &field, "must name levels from 2 to 5")?;
            let reason = format!("level {level} is held twice");
            require(!seen.contains(&level), &field, &reason)?;
            seen.push(level);
        }
    }
    Ok(())
}

fn check_sets(path: &str, entries: u32, ways: u32) -> Result<(), ModelError> {
    let field = |name: &str| format!("{path}.{name}");
    require(ways > 0, &field("ways"), "must be at least 1")?;
    require(
        (1..=MOST_ENTRIES).contains(&entries),
        &field("entries"),
        "must be 1 to 1048576",
    )?;
    require(
        entries.is_multiple_of(ways) && (entries / ways).is_power_of_two(),
        &field("entries"),
        "must be ways x a power of two of sets",
    )
}

fn require(holds: bool, field: &str, reason: &str) -> Result<(), ModelError> {
    if holds {
        Ok(())
    } else {
        Err(ModelError::field(field, reason))
    }
}
