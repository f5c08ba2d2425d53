// Counts are whole numbers, exact in f64.
#![allow(clippy::float_cmp)]

use super::*;
use crate::model::address::{Gfn, MAX_LEVELS, walk_references};
use crate::model::guest::{Guest, GuestSetup};

const MACHINE: &str = r#"
name = "test"
title = "round numbers"
clock_hz = 1e9
memory_latency = 100

[tlb]
tagged = false
pcid = true
l2_latency = 7
l1 = [{ pages = ["4K", "2M", "1G"], entries = 4, ways = 4 }]
l2 = [{ pages = ["4K"], entries = 16, ways = 4 }]

[walk]
page_walk = [{ levels = [2, 3, 4, 5], entries = 8, ways = 8 }]
nested_tlb = { entries = 8, ways = 8 }
nested_walk = [{ levels = [2, 3, 4, 5], entries = 8, ways = 8 }]
latency = 2

[[caches]]
bytes = 32768
ways = 8
line = 64
latency = 4
pte_ways = 4

[costs]
exit = 1000
nested_fault = 500
shadow_fill = 1
reflect_fault = 1
table_write = 1
unsync = 1
sync_table = 1
sync_entry = 1
zap = 1
invlpg = 1
load_cr3 = 1
build_root = 1
other = 300
policy = 200
switch_to_nested = 5000
switch_to_shadow = 6000
guest_fault = 1
system_call = 1
context_switch = 1
guest_load_cr3 = 40
guest_invlpg = 30
"#;

fn setup(guest: TableFormat, host: TableFormat, pages: [PageSize; 2]) -> CoreSetup {
    let mut machine = Machine::parse(MACHINE).unwrap();
    machine.host_tables = host;
    CoreSetup {
        machine,
        guest_tables: guest,
        guest_page: pages[0],
        host_pages: HostPages::of(pages[1]),
        isolation: false,
        shadow: ShadowStyle::KVM,
        memory_bytes: 1 << 32,
        caches: true,
        walks: true,
        seed: 1,
    }
}

fn guest(format: TableFormat) -> Guest {
    let machine = Machine::parse(MACHINE).unwrap();
    Guest::new(GuestSetup::new(format, 1 << 20, &machine.costs)).unwrap()
}

/// A page in the middle of memory, whose tables lie in separate frames.
fn mapped(setup: &CoreSetup, address: u64) -> Translation {
    let format = setup.guest_tables;
    let depth = format.walk_length(setup.guest_page);
    let mask = (1 << format.span(setup.guest_page.level())) - 1;
    let mut tables = [Gfn(0); MAX_LEVELS];
    for (table, frame) in tables.iter_mut().zip(1..=u64::from(depth)) {
        *table = Gfn(frame << 16);
    }
    Translation {
        page: Gva(address & !mask),
        frame: Gfn((address & !mask & 0x3fff_ffff) >> PAGE_SHIFT),
        size: setup.guest_page,
        writable: true,
        dirty: false,
        tables,
        depth,
        written_at: 0,
    }
}

fn references_of_one_walk(setup: &CoreSetup, translating: Translating) -> f64 {
    let guest = guest(setup.guest_tables);
    let mut core = Core::new(setup, translating).unwrap();
    let address = 0x4567_8000;
    core.access(Gva(address), &mapped(setup, address), false, guest.tables());
    core.counters().total_walk_references()
}

#[test]
fn walks_without_caches_have_their_published_lengths() {
    use PageSize::{G1, K4, M2};
    use TableFormat::{Five, Four, Two};
    let cases = [
        (Four, Four, [K4, K4], 24),
        (Four, Four, [K4, M2], 19),
        (Four, Four, [M2, K4], 19),
        (Four, Four, [M2, M2], 15),
        (Five, Five, [K4, K4], 35),
        (Four, Four, [G1, G1], 8),
        (Two, Four, [K4, K4], 14),
        (Two, Four, [M2, K4], 9),
        (Two, Five, [K4, M2], 14),
        (Five, Four, [K4, K4], 29),
    ];
    for (guest, host, pages, expected) in cases {
        let mut setup = setup(guest, host, pages);
        setup.caches = false;
        let (g, h) = (guest.walk_length(pages[0]), host.walk_length(pages[1]));
        assert_eq!(walk_references(g, h), expected);
        let counted = references_of_one_walk(&setup, Translating::Nested);
        assert_eq!(
            counted,
            f64::from(expected),
            "{guest:?} on {host:?}, {pages:?}"
        );
    }
}

#[test]
fn native_walks_read_one_entry_per_level() {
    let cases = [
        (TableFormat::Four, 4.0),
        (TableFormat::Five, 5.0),
        (TableFormat::Two, 2.0),
    ];
    for (format, expected) in cases {
        let mut setup = setup(format, TableFormat::Four, [PageSize::K4; 2]);
        setup.caches = false;
        assert_eq!(
            references_of_one_walk(&setup, Translating::Native),
            expected
        );
    }
}

#[test]
fn a_second_walk_is_shortened_by_every_cache() {
    let mut setup = setup(TableFormat::Four, TableFormat::Four, [PageSize::K4; 2]);
    setup.machine.tlb.tagged = true;
    let guest = guest(TableFormat::Four);
    let mut core = Core::new(&setup, Translating::Nested).unwrap();
    for address in [0, 0x1000] {
        core.access(
            Gva(address),
            &mapped(&setup, address),
            false,
            guest.tables(),
        );
    }
    let counters = core.counters();
    // The second walk hits the page-walk cache of level 2 and reads the level-1 entry; the final
    // frame misses the nested TLB, hits the nested walk cache and reads one host entry.
    let before = {
        let mut core = Core::new(&setup, Translating::Nested).unwrap();
        core.access(Gva(0), &mapped(&setup, 0), false, guest.tables());
        core.counters()
    };
    let second = counters - before;
    assert_eq!(second.total_walk_references(), 2.0);
    assert_eq!(
        second.walk_references[0], 2.0,
        "neighbours in lines already read"
    );
    assert_eq!(second.cycles.walks, 2.0 * 4.0 + 2.0 * 2.0);
    assert_eq!(second.exits[Exit::NestedFault as usize], 1.0);
}

#[test]
fn a_write_to_a_clean_page_walks_again_and_then_no_more() {
    let setup = setup(TableFormat::Four, TableFormat::Four, [PageSize::K4; 2]);
    let guest = guest(TableFormat::Four);
    let mut core = Core::new(&setup, Translating::Native).unwrap();
    let mut page = mapped(&setup, 0x5000);
    core.access(Gva(0x5000), &page, false, guest.tables());
    core.access(Gva(0x5000), &page, false, guest.tables());
    page.dirty = true;
    core.access(Gva(0x5000), &page, true, guest.tables());
    core.access(Gva(0x5000), &page, true, guest.tables());
    assert_eq!(core.counters().l2_tlb_misses, 2.0);
}

#[test]
fn exits_empty_untagged_tlbs_only() {
    let misses = |tagged: bool| {
        let mut setup = setup(TableFormat::Four, TableFormat::Four, [PageSize::K4; 2]);
        setup.machine.tlb.tagged = tagged;
        let guest = guest(TableFormat::Four);
        let mut core = Core::new(&setup, Translating::Nested).unwrap();
        for _ in 0..2 {
            core.access(Gva(0x5000), &mapped(&setup, 0x5000), false, guest.tables());
            core.guest_event(&GuestEvent::OtherExit, guest.tables());
        }
        core.counters().l2_tlb_misses
    };
    assert_eq!((misses(true), misses(false)), (1.0, 2.0));
}

#[test]
fn a_cr3_load_preserves_only_what_it_is_asked_to() {
    let misses = |preserve: bool| {
        let setup = setup(TableFormat::Four, TableFormat::Four, [PageSize::K4; 2]);
        let guest = guest(TableFormat::Four);
        let mut core = Core::new(&setup, Translating::Native).unwrap();
        for root in [1, 2, 1, 2] {
            let event = GuestEvent::LoadCr3 {
                root: Gfn(root),
                preserve,
            };
            core.guest_event(&event, guest.tables());
            core.access(Gva(0x5000), &mapped(&setup, 0x5000), false, guest.tables());
        }
        core.counters().l2_tlb_misses
    };
    assert_eq!((misses(true), misses(false)), (2.0, 4.0));
}

#[test]
fn invlpg_takes_all_pieces_of_a_large_page() {
    let setup = setup(
        TableFormat::Four,
        TableFormat::Four,
        [PageSize::M2, PageSize::K4],
    );
    let guest = guest(TableFormat::Four);
    let mut core = Core::new(&setup, Translating::Nested).unwrap();
    let event = GuestEvent::Invlpg {
        address: Gva(0x20_5000),
    };
    for _ in 0..2 {
        core.access(
            Gva(0x20_0000),
            &mapped(&setup, 0x20_0000),
            false,
            guest.tables(),
        );
        core.guest_event(&event, guest.tables());
    }
    assert_eq!(core.counters().l2_tlb_misses, 2.0);
}

#[test]
fn no_walks_counts_the_same_misses() {
    let mut setup = setup(TableFormat::Four, TableFormat::Four, [PageSize::K4; 2]);
    setup.machine.tlb.tagged = true;
    let guest = guest(TableFormat::Four);
    let mut counted = [true, false].map(|walks| {
        setup.walks = walks;
        let mut core = Core::new(&setup, Translating::Nested).unwrap();
        for page in [1, 2, 3, 4, 5, 6, 7, 1, 2, 9, 20, 1, 6] {
            let address = page << PAGE_SHIFT;
            core.access(
                Gva(address),
                &mapped(&setup, address),
                false,
                guest.tables(),
            );
        }
        core.counters()
    });
    assert!(counted[0].total_walk_references() > 0.0);
    assert_eq!(counted[1].total_walk_references(), 0.0);
    for counters in &mut counted {
        counters.walk_references = [0.0; 5];
        counters.cycles.walks = 0.0;
        counters.cycles.exits = 0.0;
        counters.exits = [0.0; Exit::COUNT];
    }
    assert_eq!(counted[0], counted[1]);
}

/// References of a walk through shadow tables that are in step, without caches.
fn references_of_a_shadow_walk(translating: Translating, leaf_writes: usize) -> f64 {
    let mut setup = setup(TableFormat::Four, TableFormat::Four, [PageSize::K4; 2]);
    setup.caches = false;
    let mut guest = guest(TableFormat::Four);
    let (address, mut events) = (Gva(0x4567_8000), Vec::new());
    let map = crate::step::Operation::Map {
        start: address,
        bytes: 4096,
        size: PageSize::K4,
    };
    guest.apply(&map, &mut events).unwrap();
    guest.handle_fault(address, true, &mut events).unwrap();
    let mut core = Core::new(&setup, translating).unwrap();
    let found = guest.translate(address, true).unwrap();
    core.access(address, &found, true, guest.tables());
    let written = GuestEvent::TableWrite {
        table: found.tables[3],
        level: 1,
        index: TableFormat::Four.index(address.0, 1) + 1,
        address: Gva(address.0 + 4096),
        was_present: false,
        present: false,
    };
    for _ in 0..leaf_writes {
        core.guest_event(&written, guest.tables());
    }
    // The second of these walks finds everything in step.
    let mut before = Counters::default();
    for _ in 0..2 {
        before = core.counters();
        core.clear_all();
        core.access(address, &found, true, guest.tables());
    }
    (core.counters() - before).total_walk_references()
}

#[test]
fn a_shadow_walk_is_as_long_as_a_native_one() {
    assert_eq!(references_of_a_shadow_walk(Translating::Shadow, 0), 4.0);
}

#[test]
fn agile_paging_walks_a_written_leaf_table_nested() {
    // Three shadow entries, the guest's own leaf entry, and the final frame's translation.
    assert_eq!(references_of_a_shadow_walk(Translating::Agile, 0), 4.0);
    assert_eq!(references_of_a_shadow_walk(Translating::Agile, 2), 8.0);
}
