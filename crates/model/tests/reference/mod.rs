//! A core according to its definition, and slow: lists are searched from end to end, one at a time.
//!
//! It shares with the model only the descriptions, the layout of host memory and the kinds of
//! counters.

mod arrays;

use std::collections::{BTreeMap, BTreeSet};

use vtax_model::model::address::{Gfn, Gpa, Gva, Hpa, PageSize, TableFormat};
use vtax_model::model::core::{CoreSetup, host_address, host_entry_address};
use vtax_model::model::counters::{Counters, Exit, WALK_SOURCES};
use vtax_model::model::guest_event::{GuestEvent, PartialWalk, Translation};
use vtax_model::model::machine::{Replacement, WalkCache, WalkCaches};
use vtax_model::model::mode::Translating;

use arrays::{Array, Lines, Tlb};

/// What distinguishes walk-cache entries: level, address prefix, address space.
type Prefix = (u8, u64, u64);

pub struct Reference {
    setup: CoreSetup,
    translating: Translating,
    tlb: Tlb,
    page_walk: Vec<(Vec<u8>, Array<Prefix>)>,
    nested_tlb: Option<Array<(PageSize, u64)>>,
    nested_walk: Vec<(Vec<u8>, Array<Prefix>)>,
    caches: Vec<Lines>,
    mapped: BTreeSet<(PageSize, u64)>,
    spaces: BTreeMap<Gfn, u64>,
    last_space: u64,
    space: u64,
    pieces: bool,
    counters: Counters,
}

impl Reference {
    pub fn new(setup: &CoreSetup, translating: Translating) -> Self {
        let walk = setup.machine.walk.clone();
        let walk = if setup.caches {
            walk
        } else {
            WalkCaches::default()
        };
        let caches = if setup.caches {
            &setup.machine.caches[..]
        } else {
            &[]
        };
        Self {
            translating,
            tlb: Tlb::new(&setup.machine.tlb, setup.seed),
            page_walk: walk.page_walk.iter().map(walk_cache).collect(),
            nested_tlb: walk.nested_tlb.map(|cache| lru(cache.entries, cache.ways)),
            nested_walk: walk.nested_walk.iter().map(walk_cache).collect(),
            caches: caches.iter().map(Lines::new).collect(),
            mapped: BTreeSet::new(),
            spaces: BTreeMap::new(),
            last_space: 0,
            space: 0,
            pieces: false,
            counters: Counters::default(),
            setup: setup.clone(),
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn access(&mut self, address: Gva, found: &Translation, write: bool) {
        let guest_bytes = 1 << self.setup.guest_tables.span(found.size.level());
        let data = found.frame.0 * 4096 + address.0 % guest_bytes / 4096 * 4096;
        let size = match self.translating {
            Translating::Native => found.size,
            _ => found.size.min(self.host_size(data)),
        };
        if let Some(level) = self.tlb.find(address.0, size, self.space, write) {
            if level == 2 {
                self.counters.l1_tlb_misses += 1.0;
                self.counters.cycles.tlb += f64::from(self.setup.machine.tlb.l2_latency);
            }
            return;
        }
        self.counters.l1_tlb_misses += 1.0;
        self.counters.l2_tlb_misses += 1.0;
        if self.setup.walks {
            self.guest_walk(address.0, &found.tables[..usize::from(found.depth)]);
            if self.translating == Translating::Nested {
                self.host_walk(data);
            }
        }
        self.pieces |= 1 << size.shift() < guest_bytes;
        self.tlb
            .insert(address.0, size, self.space, found.writable && found.dirty);
    }

    pub fn guest_fault(&mut self, address: Gva, walk: &PartialWalk) {
        self.counters.l1_tlb_misses += 1.0;
        self.counters.l2_tlb_misses += 1.0;
        if self.setup.walks {
            self.guest_walk(address.0, &walk.tables[..usize::from(walk.depth)]);
        }
    }

    pub fn guest_event(&mut self, event: &GuestEvent) {
        let costs = self.setup.machine.costs.clone();
        match *event {
            GuestEvent::TableWrite { .. } => {}
            GuestEvent::TableFreed { table } => {
                self.spaces.remove(&table);
            }
            GuestEvent::Invlpg { address } => {
                self.counters.cycles.guest += f64::from(costs.guest_invlpg);
                if self.pieces {
                    self.flush_tlb();
                } else {
                    self.tlb.remove(address.0, self.space);
                }
                self.flush_page_walk();
            }
            GuestEvent::LoadCr3 { root, preserve } => {
                self.counters.cycles.guest += f64::from(costs.guest_load_cr3);
                if !(preserve && self.setup.machine.tlb.pcid) {
                    self.spaces.clear();
                    self.flush_tlb();
                    self.flush_page_walk();
                }
                self.last_space += 1;
                self.space = *self.spaces.entry(root).or_insert(self.last_space);
            }
            GuestEvent::Kernel { cycles } => self.counters.cycles.guest += f64::from(cycles),
            GuestEvent::OtherExit if self.translating == Translating::Native => {}
            GuestEvent::OtherExit => self.exit(Exit::Other, costs.other),
        }
    }

    pub fn retire(&mut self, instructions: u64, references: u64, base_cpi: f32) {
        self.counters.instructions += instructions as f64;
        self.counters.references += references as f64;
        self.counters.cycles.base += instructions as f64 * f64::from(base_cpi);
    }

    pub fn policy_exit(&mut self) {
        self.exit(Exit::Policy, self.setup.machine.costs.policy);
    }

    /// Reads the entries of the guest's `tables`, root first, unless a walk cache helps.
    fn guest_walk(&mut self, address: u64, tables: &[Gfn]) {
        let format = self.setup.guest_tables;
        let levels = format.levels();
        let leaf = levels + 1 - tables.len() as u8;
        let hit = (leaf + 1..=levels).find(|&level| {
            let prefix = (level, address >> format.span(level), self.space);
            has(&mut self.page_walk, prefix)
        });
        self.walk_cache_hit(hit.is_some());
        for (&table, level) in tables.iter().zip((leaf..=levels).rev()) {
            if hit.is_some_and(|hit| level >= hit) {
                continue;
            }
            // A page-walk cache's entry names the host frame of the table below it.
            let named = hit.is_some_and(|hit| level + 1 == hit);
            if self.translating == Translating::Nested && !named {
                self.host_walk(table.0 * 4096);
            }
            let index = u64::from(format.index(address, level));
            self.read(host_address(Gpa(
                table.0 * 4096 + index * format.entry_bytes()
            )));
            if level > leaf {
                let prefix = (level, address >> format.span(level), self.space);
                keep(&mut self.page_walk, prefix);
            }
        }
    }

    /// The size of the host's page around a guest physical address.
    fn host_size(&self, address: u64) -> PageSize {
        let host = &self.setup.host_pages;
        let mut ranges = host.ranges().iter();
        let inside = ranges.find(|range| (range.start.0..range.end.0).contains(&address));
        inside.map_or(host.usual(), |range| range.size)
    }

    /// Translates a guest physical address.
    fn host_walk(&mut self, address: u64) {
        let (format, size) = (self.setup.machine.host_tables, self.host_size(address));
        let page = address >> size.shift();
        if let Some(tlb) = &mut self.nested_tlb
            && tlb.find(page, &(size, page), false).is_some()
        {
            return self.walk_cache_hit(true);
        }
        if self.mapped.insert((size, page)) {
            self.exit(Exit::NestedFault, self.setup.machine.costs.nested_fault);
        }
        let levels = format.levels();
        let hit = (size.level() + 1..=levels).find(|&level| {
            let prefix = (level, address >> format.span(level), 0);
            has(&mut self.nested_walk, prefix)
        });
        self.walk_cache_hit(hit.is_some());
        for level in (size.level()..hit.unwrap_or(levels + 1)).rev() {
            self.read(host_entry_address(Gpa(address), level));
            if level > size.level() {
                keep(
                    &mut self.nested_walk,
                    (level, address >> format.span(level), 0),
                );
            }
        }
        if let Some(tlb) = &mut self.nested_tlb {
            tlb.insert(page, (size, page), false);
        }
    }

    fn read(&mut self, address: Hpa) {
        let machine = &self.setup.machine;
        for (at, cache) in self.caches.iter_mut().enumerate() {
            if cache.read(address.0) {
                self.counters.walk_references[at] += 1.0;
                self.counters.cycles.walks += f64::from(machine.caches[at].latency);
                return;
            }
        }
        self.counters.walk_references[WALK_SOURCES - 1] += 1.0;
        self.counters.cycles.walks += f64::from(machine.memory_latency);
    }

    fn walk_cache_hit(&mut self, hit: bool) {
        if hit {
            self.counters.cycles.walks += f64::from(self.setup.machine.walk.latency);
        }
    }

    fn exit(&mut self, cause: Exit, work: u32) {
        let cycles = f64::from(self.setup.machine.costs.exit) + f64::from(work);
        self.counters.exits[cause as usize] += 1.0;
        self.counters.cycles.exits += cycles;
        if self.setup.machine.tlb.tagged {
            return;
        }
        self.flush_tlb();
        self.flush_page_walk();
        self.nested_walk
            .iter_mut()
            .for_each(|(_, array)| array.clear());
        self.nested_tlb.iter_mut().for_each(Array::clear);
    }

    fn flush_tlb(&mut self) {
        self.tlb.clear();
        self.pieces = false;
    }

    fn flush_page_walk(&mut self) {
        self.page_walk
            .iter_mut()
            .for_each(|(_, array)| array.clear());
    }
}

fn lru<T: PartialEq>(entries: u32, ways: u32) -> Array<T> {
    Array::new(entries, ways, Replacement::Lru, 0)
}

fn walk_cache(cache: &WalkCache) -> (Vec<u8>, Array<Prefix>) {
    (cache.levels.clone(), lru(cache.entries, cache.ways))
}

/// The first cache for the level decides.
fn has(caches: &mut [(Vec<u8>, Array<Prefix>)], prefix: Prefix) -> bool {
    let cache = caches
        .iter_mut()
        .find(|(levels, _)| levels.contains(&prefix.0));
    cache.is_some_and(|(_, array)| array.find(prefix.1, &prefix, false).is_some())
}

fn keep(caches: &mut [(Vec<u8>, Array<Prefix>)], prefix: Prefix) {
    if let Some((_, array)) = caches
        .iter_mut()
        .find(|(levels, _)| levels.contains(&prefix.0))
    {
        array.insert(prefix.1, prefix, false);
    }
}

/// The page sizes that a guest with such tables can map.
pub fn sizes(format: TableFormat) -> &'static [PageSize] {
    match format {
        TableFormat::Two => &PageSize::ALL[..2],
        TableFormat::Four | TableFormat::Five => &PageSize::ALL,
    }
}
