//! Compares the fast core with a plain reference, on random machines and random work.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

mod reference;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use vtax_model::model::address::{Gfn, Gpa, Gva, MAX_LEVELS, PageSize, TableFormat};
use vtax_model::model::core::{Core, CoreSetup};
use vtax_model::model::guest::{Guest, GuestSetup};
use vtax_model::model::guest_event::{Access, GuestEvent, PartialWalk, Translation};
use vtax_model::model::host_pages::{HostPages, HostRange};
use vtax_model::model::machine::{
    CacheLevel, Costs, Machine, Replacement, TlbArray, Tlbs, WalkCache, WalkCaches,
};
use vtax_model::model::mode::Translating;

use reference::Reference;

const MEMORY: u64 = 1 << 30;

/// One thing that happens to a core.
#[derive(Clone, Copy, Debug)]
enum Work {
    Access {
        address: u64,
        size: u8,
        write: bool,
        writable: bool,
        dirty: bool,
    },
    Fault {
        address: u64,
        depth: u8,
    },
    Invlpg {
        address: u64,
    },
    LoadCr3 {
        root: u64,
        preserve: bool,
    },
    TableFreed {
        root: u64,
    },
    OtherExit,
    PolicyExit,
    Kernel {
        cycles: u16,
    },
    Retire {
        instructions: u16,
    },
}

/// Few distinct values on every level, so that prefixes and sets collide often.
fn address() -> impl Strategy<Value = u64> {
    let low = prop_oneof![0_u64..16, (0_u64..16).prop_map(|page| page * 32)];
    (0_u64..2, 0_u64..3, 0_u64..3, 0_u64..6, low).prop_map(|(l5, l4, l3, l2, l1)| {
        (l5 << 48) | (l4 << 39) | (l3 << 30) | (l2 << 21) | (l1 << 12)
    })
}

fn work() -> impl Strategy<Value = Work> {
    let access = (address(), 0_u8..3, any::<[bool; 3]>()).prop_map(|(address, size, flags)| {
        let [write, writable, dirty] = flags;
        Work::Access {
            address,
            size,
            write,
            writable,
            dirty,
        }
    });
    prop_oneof![
        60 => access,
        4 => (address(), 1_u8..6).prop_map(|(address, depth)| Work::Fault { address, depth }),
        2 => address().prop_map(|address| Work::Invlpg { address }),
        2 => (0_u64..4, any::<bool>())
            .prop_map(|(root, preserve)| Work::LoadCr3 { root, preserve }),
        1 => (0_u64..4).prop_map(|root| Work::TableFreed { root }),
        1 => Just(Work::OtherExit),
        1 => Just(Work::PolicyExit),
        1 => any::<u16>().prop_map(|cycles| Work::Kernel { cycles }),
        1 => any::<u16>().prop_map(|instructions| Work::Retire { instructions }),
    ]
}

/// Ways and entries: small sets, sets of one and two words, and sets with buckets.
fn geometry() -> impl Strategy<Value = (u32, u32)> {
    let ways = prop_oneof![4 => 1_u32..9, 2 => 9_u32..17, 2 => 17_u32..40, 1 => Just(64_u32)];
    (ways, 0_u32..4).prop_map(|(ways, sets)| (ways, ways << sets))
}

fn tlb_array(pages: Vec<PageSize>) -> impl Strategy<Value = TlbArray> {
    let replacement = select(vec![
        Replacement::Lru,
        Replacement::Lru,
        Replacement::TreePlru,
        Replacement::Random,
    ]);
    (geometry(), replacement).prop_map(move |((ways, entries), replacement)| {
        let (ways, entries) = match replacement {
            Replacement::TreePlru => {
                let rounded = ways.next_power_of_two();
                (rounded, entries / ways * rounded)
            }
            _ => (ways, entries),
        };
        TlbArray {
            pages: pages.clone(),
            entries,
            ways,
            replacement,
        }
    })
}

/// Arrays for the page sizes, each size in one array or in none; 4 KiB is in one when `needed`.
fn tlb_level(needed: bool) -> impl Strategy<Value = Vec<TlbArray>> {
    let homes = (0_usize..if needed { 2 } else { 3 }, 0_usize..3, 0_usize..3);
    homes.prop_flat_map(|(small, middle, large)| {
        let mut arrays = BTreeMap::<usize, Vec<PageSize>>::new();
        for (home, size) in [small, middle, large].into_iter().zip(PageSize::ALL) {
            // The third place is no array at all.
            if home < 2 {
                arrays.entry(home).or_default().push(size);
            }
        }
        arrays.into_values().map(tlb_array).collect::<Vec<_>>()
    })
}

fn walk_cache() -> impl Strategy<Value = WalkCache> {
    (subsequence(vec![2_u8, 3, 4, 5], 1..5), geometry()).prop_map(|(levels, (ways, entries))| {
        WalkCache {
            levels,
            entries,
            ways,
        }
    })
}

fn walk_caches() -> impl Strategy<Value = WalkCaches> {
    let nested_tlb = proptest::option::of(geometry());
    let caches = || proptest::collection::vec(walk_cache(), 0..3);
    (caches(), nested_tlb, caches(), 0_u32..5).prop_map(|(page_walk, tlb, nested_walk, latency)| {
        let nested_tlb = tlb.map(|(ways, entries)| WalkCache {
            levels: vec![],
            entries,
            ways,
        });
        WalkCaches {
            page_walk,
            nested_tlb,
            nested_walk,
            latency,
        }
    })
}

fn cache() -> impl Strategy<Value = CacheLevel> {
    (6_u32..8, 0_u32..5, 1_u32..24, 1_u32..50).prop_flat_map(|(line, sets, ways, latency)| {
        (1..=ways).prop_map(move |pte_ways| CacheLevel {
            bytes: u64::from(ways) << (line + sets),
            ways,
            line: 1 << line,
            latency,
            pte_ways,
        })
    })
}

fn costs() -> Costs {
    Costs {
        exit: 1000,
        nested_fault: 501,
        shadow_fill: 1,
        reflect_fault: 1,
        table_write: 1,
        unsync: 1,
        sync_table: 1,
        sync_entry: 1,
        zap: 1,
        invlpg: 1,
        load_cr3: 1,
        build_root: 1,
        other: 303,
        policy: 207,
        switch_to_nested: 1,
        switch_to_shadow: 1,
        guest_fault: 1,
        system_call: 1,
        context_switch: 1,
        guest_load_cr3: 41,
        guest_invlpg: 31,
    }
}

fn machine() -> impl Strategy<Value = Machine> {
    let tlb = (any::<[bool; 2]>(), tlb_level(true), tlb_level(false)).prop_map(
        |([tagged, pcid], l1, l2)| Tlbs {
            tagged,
            pcid,
            l1,
            l2,
            l2_latency: 7,
        },
    );
    let host = select(vec![TableFormat::Four, TableFormat::Five]);
    let caches = proptest::collection::vec(cache(), 0..5).prop_map(|mut c| {
        c.sort_by_key(|l| l.latency);
        c
    });
    (tlb, walk_caches(), caches, host)
        .prop_map(|(tlb, walk, caches, host_tables)| Machine {
            name: "random".to_owned(),
            title: String::new(),
            clock_hz: 1e9,
            host_tables,
            tlb,
            walk,
            caches,
            memory_latency: 211,
            costs: costs(),
            sources: BTreeMap::new(),
        })
        .prop_filter("valid", |m: &Machine| m.check().is_ok())
}

/// Pages of one size, or of two sizes in chunks of memory.
fn host_pages() -> impl Strategy<Value = HostPages> {
    let uniform = select(PageSize::ALL.to_vec()).prop_map(HostPages::of);
    let sizes = select(vec![
        (PageSize::K4, PageSize::M2),
        (PageSize::M2, PageSize::K4),
    ]);
    let chunks = proptest::collection::vec(any::<bool>(), 64);
    let mixed = (sizes, chunks).prop_map(|((usual, size), chunks)| {
        let bytes = MEMORY / chunks.len() as u64;
        let chosen = (0..).zip(chunks).filter(|(_, chosen)| *chosen);
        let ranges = chosen.map(|(at, _)| HostRange {
            start: Gpa(at * bytes),
            end: Gpa((at + 1) * bytes),
            size,
        });
        HostPages::with(usual, ranges.collect()).unwrap()
    });
    prop_oneof![uniform, mixed]
}

fn setup() -> impl Strategy<Value = CoreSetup> {
    let guest = select(vec![TableFormat::Two, TableFormat::Four, TableFormat::Five]);
    let flags = (proptest::bool::weighted(0.9), proptest::bool::weighted(0.9));
    (machine(), guest, host_pages(), flags, any::<u64>()).prop_map(
        |(machine, guest_tables, host_pages, (caches, walks), seed)| CoreSetup {
            machine,
            guest_tables,
            guest_page: PageSize::K4,
            host_pages,
            isolation: false,
            memory_bytes: MEMORY,
            shadow: vtax_model::model::shadow::ShadowStyle::KVM,
            caches,
            walks,
            seed,
        },
    )
}

/// An arbitrary frame of memory for anything that has a number.
fn frame(level: u8, number: u64) -> Gfn {
    let mixed = (number * 8 + u64::from(level)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Gfn(mixed % (MEMORY >> 12))
}

fn tables(format: TableFormat, address: u64, depth: u8) -> [Gfn; MAX_LEVELS] {
    let mut tables = [Gfn(0); MAX_LEVELS];
    for step in 0..depth {
        let level = format.levels() - step;
        let number = if step == 0 {
            0
        } else {
            address >> format.span(level + 1)
        };
        tables[usize::from(step)] = frame(level, number);
    }
    tables
}

fn translation(format: TableFormat, address: u64, size: u8) -> Translation {
    let sizes = reference::sizes(format);
    let size = sizes[usize::from(size) % sizes.len()];
    let (span, depth) = (format.span(size.level()), format.walk_length(size));
    let pages = 1 << (span - 12);
    let first = frame(0, address >> span).0 / pages * pages;
    Translation {
        page: Gva(address >> span << span),
        frame: Gfn(first),
        size,
        writable: false,
        dirty: false,
        tables: tables(format, address, depth),
        depth,
        written_at: 0,
    }
}

struct Pair {
    format: TableFormat,
    core: Core,
    reference: Reference,
    guest: Guest,
}

impl Pair {
    fn new(setup: &CoreSetup, translating: Translating) -> Self {
        let guest = GuestSetup::new(setup.guest_tables, 1 << 20, &setup.machine.costs);
        Self {
            format: setup.guest_tables,
            core: Core::new(setup, translating).unwrap(),
            reference: Reference::new(setup, translating),
            guest: Guest::new(guest).unwrap(),
        }
    }

    /// Truncates an address to the guest's format.
    fn cut(&self, address: u64) -> u64 {
        address & ((1 << self.format.address_bits()) - 1)
    }

    fn event(&mut self, event: GuestEvent) {
        self.core.guest_event(&event, self.guest.tables());
        self.reference.guest_event(&event);
    }

    /// The access that the work is, if it is one.
    fn access(&self, work: Work) -> Option<Access> {
        let Work::Access {
            address,
            size,
            write,
            writable,
            dirty,
        } = work
        else {
            return None;
        };
        let address = self.cut(address);
        let mut found = translation(self.format, address, size);
        (found.writable, found.dirty) = (writable || write, dirty || write);
        let address = Gva(address | 0x123);
        Some(Access {
            address,
            write,
            found,
        })
    }

    /// The core follows successive accesses as one block.
    fn follow_block(&mut self, block: &mut Vec<Access>) {
        self.core.access_all(block, self.guest.tables());
        for access in block.drain(..) {
            self.reference
                .access(access.address, &access.found, access.write);
        }
    }

    fn follow(&mut self, work: Work) {
        match work {
            Work::Access { .. } => {
                if let Some(access) = self.access(work) {
                    let (tables, found) = (self.guest.tables(), &access.found);
                    self.core
                        .access(access.address, found, access.write, tables);
                    self.reference.access(access.address, found, access.write);
                }
            }
            Work::Fault { address, depth } => {
                let address = self.cut(address);
                let depth = depth.min(self.format.levels());
                let tables = tables(self.format, address, depth);
                let walk = PartialWalk {
                    tables,
                    depth,
                    protection: false,
                };
                self.core.guest_fault(Gva(address), &walk);
                self.reference.guest_fault(Gva(address), &walk);
            }
            Work::Invlpg { address } => {
                let address = Gva(self.cut(address));
                self.event(GuestEvent::Invlpg { address });
            }
            Work::LoadCr3 { root, preserve } => {
                self.event(GuestEvent::LoadCr3 {
                    root: Gfn(root),
                    preserve,
                });
            }
            Work::TableFreed { root } => self.event(GuestEvent::TableFreed { table: Gfn(root) }),
            Work::OtherExit => self.event(GuestEvent::OtherExit),
            Work::Kernel { cycles } => {
                self.event(GuestEvent::Kernel {
                    cycles: u32::from(cycles),
                });
            }
            Work::PolicyExit => {
                self.core.policy_exit();
                self.reference.policy_exit();
            }
            Work::Retire { instructions } => {
                self.core.retire(u64::from(instructions), 1, 0.75);
                self.reference.retire(u64::from(instructions), 1, 0.75);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_core_counts_what_the_reference_counts(
        setup in setup(),
        work in proptest::collection::vec(work(), 1..600),
    ) {
        prop_assert_eq!(setup.machine.check(), Ok(()));
        for translating in [Translating::Native, Translating::Nested] {
            let mut pair = Pair::new(&setup, translating);
            for (at, &work) in work.iter().enumerate() {
                pair.follow(work);
                let (core, reference) = (pair.core.counters(), pair.reference.counters());
                prop_assert_eq!(core, reference, "{:?}, step {}: {:?}", translating, at, work);
            }
        }
    }

    #[test]
    fn blocks_of_accesses_count_what_the_reference_counts_for_each(
        setup in setup(),
        work in proptest::collection::vec(work(), 1..600),
    ) {
        for translating in [Translating::Native, Translating::Nested] {
            let mut pair = Pair::new(&setup, translating);
            let mut block = Vec::new();
            for (at, &work) in work.iter().enumerate() {
                if let Some(access) = pair.access(work) {
                    block.push(access);
                    continue;
                }
                pair.follow_block(&mut block);
                pair.follow(work);
                let (core, reference) = (pair.core.counters(), pair.reference.counters());
                prop_assert_eq!(core, reference, "{:?}, before step {}", translating, at);
            }
            pair.follow_block(&mut block);
            prop_assert_eq!(pair.core.counters(), pair.reference.counters());
        }
    }
}
