use super::rig::{COSTS, Rig, SETUP, START};
use crate::model::address::{Gfn, Gva};
use crate::model::cost_account::CostAccount;
use crate::model::guest_event::GuestEvent;
use crate::model::shadow::{Flush, MIN_PAGES, ShadowSetup, ShadowStyle};
use crate::step::Operation;

/// KVM without prefetching, where single entries are counted.
fn plain(pages: u64) -> Rig {
    let style = ShadowStyle::Kvm {
        unsync: true,
        prefetch: 0,
        flood: 3,
    };
    Rig::new(ShadowSetup { style, ..SETUP }, pages << 12)
}

#[test]
fn a_first_touch_is_a_pair_of_exits_and_the_leaf_table_goes_unsync_once() {
    let mut rig = plain(16);
    rig.page(0, true);
    assert_eq!(rig.exits(), [("shadow_fill", 1), ("guest_fault", 1)]);
    rig.page(1, true);
    let with_unsync = [("shadow_fill", 1), ("guest_fault", 1), ("unsync", 1)];
    assert_eq!(rig.exits(), with_unsync);
    rig.page(2, true);
    assert_eq!(rig.exits(), [("shadow_fill", 1), ("guest_fault", 1)]);
}

#[test]
fn a_walk_names_what_it_reads_and_where_it_failed() {
    let mut rig = plain(16);
    let first = rig.page(0, true);
    assert_eq!(
        (first.depth, first.nested_from, first.failed_depth),
        (4, 4, 0)
    );
    assert_eq!(rig.shadow.pages(), 4);
    let second = rig.page(1, true);
    assert_eq!(second.failed_depth, 4);
    assert_eq!(second.entries[3].0, first.entries[3].0 + 8);
    assert_eq!(second.entries[..3], first.entries[..3]);
    assert_eq!(rig.page(1, true).failed_depth, 0);
    rig.apply(Operation::Map {
        start: Gva(START << 1),
        bytes: 4096,
        size: SETUP.guest_page,
    });
    // Another 1 GiB: the second level of the walk has no entry.
    assert_eq!(rig.touch(START << 1, true).failed_depth, 2);
}

#[test]
fn a_clean_page_is_read_only_until_its_first_write() {
    let mut rig = plain(16);
    assert!(!rig.page(0, false).writable);
    rig.exits();
    let write = rig.page(0, true);
    assert!(write.writable);
    assert_eq!(
        (write.failed_depth, rig.exits()),
        (4, vec![("shadow_dirty", 1)])
    );
    assert!(rig.page(0, false).writable);
    assert_eq!(rig.exits(), []);
}

#[test]
fn prefetch_fills_the_aligned_block() {
    let mut rig = plain(16);
    rig.pages(0..16, true);
    let root = rig.guest.root();
    let mut rig = Rig {
        shadow: crate::model::shadow::ShadowTables::new(&SETUP),
        ..rig
    };
    rig.tell(&[GuestEvent::LoadCr3 {
        root,
        preserve: false,
    }]);
    rig.exits();
    rig.page(3, true);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
    (0..8).for_each(|page| assert!(rig.page(page, true).writable));
    assert_eq!(rig.exits(), []);
    rig.pages(8..16, true);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
}

#[test]
fn three_writes_to_an_upper_table_zap_its_page() {
    let mut rig = plain(16);
    rig.page(0, true);
    let directory = rig.tables_of(START)[2];
    rig.reset();
    assert_eq!(rig.rewrite(directory, 0, START), Flush::All);
    assert_eq!(rig.rewrite(directory, 9, START), Flush::None);
    assert_eq!((rig.shadow.pages(), rig.cycles()), (4, 0));
    assert_eq!(rig.flooded(), 0);
    assert_eq!(rig.rewrite(directory, 9, START), Flush::All);
    assert_eq!(rig.flooded(), 1);
    assert_eq!((rig.shadow.pages(), rig.cycles()), (3, 10_000));
    assert_eq!(rig.exits(), [("table_write", 3)]);
    // Nothing shadows the table, but its frame is still read-only once.
    assert_eq!(rig.rewrite(directory, 9, START), Flush::None);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
    assert_eq!(rig.rewrite(directory, 9, START), Flush::None);
    assert_eq!(rig.exits(), []);
    // The walk ends where the removed page was; the leaf page is found again.
    assert_eq!(rig.page(0, true).failed_depth, 2);
    assert_eq!(
        (rig.shadow.pages(), rig.exits()),
        (4, vec![("shadow_fill", 1)])
    );
}

#[test]
fn a_use_between_writes_ends_the_flood() {
    let mut rig = plain(16);
    rig.page(0, true);
    rig.page(1, true);
    let directory = rig.tables_of(START)[2];
    rig.reset();
    for _ in 0..4 {
        rig.rewrite(directory, 0, START);
        rig.rewrite(directory, 0, START);
        rig.page(0, true);
    }
    assert_eq!(rig.shadow.pages(), 4);
    assert_eq!(rig.exits(), [("shadow_fill", 4), ("table_write", 8)]);
}

#[test]
fn a_root_in_use_is_never_flooded() {
    let mut rig = plain(16);
    rig.page(0, true);
    let root = rig.guest.root();
    for _ in 0..9 {
        rig.rewrite(root, 9, 0);
    }
    assert_eq!(rig.flooded(), 0);
    rig.reset();
    assert_eq!(rig.page(0, true).failed_depth, 0);
    assert_eq!(rig.cycles(), 0);
}

#[test]
fn a_flooded_root_is_built_again() {
    let mut rig = plain(16);
    rig.page(0, true);
    let root = rig.guest.root();
    let load = |root| GuestEvent::LoadCr3 {
        root,
        preserve: true,
    };
    rig.tell(&[load(Gfn(9999))]);
    rig.rewrite(root, 9, 0);
    rig.rewrite(root, 9, 0);
    // A load is a use.
    rig.tell(&[load(root), load(Gfn(9999))]);
    rig.rewrite(root, 9, 0);
    rig.rewrite(root, 9, 0);
    assert_eq!(rig.flooded(), 0);
    rig.rewrite(root, 9, 0);
    assert_eq!(rig.flooded(), 1);
    rig.reset();
    rig.tell(&[load(root)]);
    assert_eq!(rig.exits(), [("load_cr3", 1)]);
    assert_eq!(rig.cycles(), u64::from(COSTS.build_root));
    assert!(rig.page(0, true).failed_depth > 0);
}

#[test]
fn a_cr3_load_brings_unsync_tables_in_step_and_protects_them() {
    let mut rig = plain(16);
    rig.pages(0..8, true);
    let root = rig.guest.root();
    // Unmapping 3 pages writes 3 entries and invalidates them, so nothing is left to do.
    rig.unmap(0, 3);
    assert!(rig.exits().contains(&("invlpg", 3)));
    rig.reset();
    let flush = rig.tell(&[GuestEvent::LoadCr3 {
        root,
        preserve: false,
    }]);
    assert_eq!(flush, [Flush::All]);
    assert_eq!(rig.cycles(), 1_001_000);
    rig.tell(&[GuestEvent::LoadCr3 {
        root,
        preserve: false,
    }]);
    assert_eq!(rig.cycles(), 1_000_000);
    assert_eq!(rig.exits(), [("load_cr3", 2)]);
    rig.unmap(3, 1);
    assert_eq!(rig.exits(), [("unsync", 1), ("invlpg", 1)]);
}

#[test]
fn a_cr3_load_that_preserves_the_tlb_syncs_nothing() {
    let mut rig = plain(16);
    rig.pages(0..8, true);
    let root = rig.guest.root();
    rig.reset();
    let flush = rig.tell(&[GuestEvent::LoadCr3 {
        root,
        preserve: true,
    }]);
    assert_eq!((flush, rig.cycles()), (vec![Flush::None], 1_000_000));
}

#[test]
fn a_long_unmapping_is_synced_by_the_full_flush() {
    let mut rig = plain(64);
    rig.pages(0..64, true);
    rig.reset();
    rig.unmap(0, 40);
    // Forty entries and one CR3 load; the table was unsync already.
    assert_eq!(rig.exits(), [("load_cr3", 1)]);
    assert_eq!(rig.cycles(), 1_000_000 + 1_000 + 40 * 100);
}

#[test]
fn invlpg_brings_one_entry_in_step() {
    let mut rig = plain(16);
    rig.pages(0..8, true);
    rig.reset();
    assert!(rig.unmap(2, 1).contains(&Flush::Page(Gva(START + 0x2000))));
    assert_eq!((rig.exits(), rig.cycles()), (vec![("invlpg", 1)], 110));
    // There is nothing to do for an entry that agrees.
    rig.tell(&[GuestEvent::Invlpg {
        address: Gva(START),
    }]);
    assert_eq!(rig.cycles(), 10);
}

#[test]
fn protecting_a_page_takes_its_writability_at_once() {
    let mut rig = plain(16);
    rig.pages(0..8, true);
    let protect = |writable| Operation::Protect {
        start: Gva(START),
        bytes: 0x2000,
        writable,
    };
    rig.apply(protect(false));
    rig.reset();
    assert!(!rig.page(0, false).writable);
    assert_eq!(rig.exits(), []);
    rig.apply(protect(true));
    rig.reset();
    // INVLPG brought the entry in step; the page was dirty before.
    assert!(rig.page(0, true).writable);
    assert_eq!(rig.exits(), []);
}

#[test]
fn four_roots_are_remembered_and_processes_keep_their_pages() {
    let mut rig = plain(16);
    rig.page(0, true);
    for process in 1..=4 {
        rig.apply(Operation::Spawn { process });
        rig.apply(Operation::Switch { process });
    }
    rig.reset();
    rig.apply(Operation::Switch { process: 2 });
    assert_eq!(rig.cycles(), 1_000_000);
    rig.apply(Operation::Switch { process: 0 });
    // The root is not among the last ones, so it is built from the page that still exists. Its leaf
    // table was never written since it was shadowed.
    assert_eq!(rig.cycles(), 100_000_000);
    assert_eq!(rig.exits(), [("load_cr3", 2)]);
    rig.page(0, true);
    assert_eq!(rig.exits(), []);
}

#[test]
fn fork_protects_the_parent_and_each_side_copies_at_its_write() {
    let mut rig = plain(16);
    rig.pages(0..4, true);
    rig.exits();
    rig.apply(Operation::Fork { child: 1 });
    let fork = rig.exits();
    // The parent's four entries lie in a table that is unsync already; the child's tables have no
    // shadow pages. Only the flush of the parent remains.
    assert!(
        fork.iter()
            .all(|(name, _)| ["load_cr3", "invlpg"].contains(name)),
        "{fork:?}"
    );
    rig.page(0, true);
    let copy = rig.exits();
    assert!(copy.contains(&("guest_fault", 1)), "{copy:?}");
    assert!(copy.contains(&("shadow_fill", 1)), "{copy:?}");
    assert!(copy.contains(&("invlpg", 1)), "{copy:?}");
    rig.apply(Operation::Switch { process: 1 });
    rig.exits();
    rig.page(1, false);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
}

#[test]
fn a_freed_leaf_table_goes_unsync_and_any_other_loses_its_page() {
    let mut rig = plain(16);
    rig.page(0, true);
    let tables = rig.tables_of(START);
    rig.exits();
    for table in [tables[3], tables[3], Gfn(9999)] {
        rig.tell(&[GuestEvent::TableFreed { table }]);
    }
    assert_eq!((rig.shadow.pages(), rig.exits()), (4, vec![("unsync", 1)]));
    rig.tell(&[GuestEvent::TableFreed { table: tables[2] }]);
    // The write faults again: its entry is still read-only.
    assert_eq!(rig.exits(), [("shadow_fill", 1), ("unprotect", 1)]);
    // The unsync page below goes with the page above it.
    assert_eq!(rig.shadow.pages(), 2);
}

#[test]
fn an_unsync_table_that_comes_to_be_used_above_the_leaves_is_shadowed_anew() {
    let mut rig = plain(16);
    rig.page(0, true);
    let table = rig.tables_of(START)[3];
    rig.rewrite(table, 9, START);
    assert_eq!(rig.shadow.pages(), 4);
    let mut found = rig.guest.translate(Gva(START), true).unwrap();
    found.tables[1] = table;
    found.page = Gva(1 << 40);
    rig.reset();
    let mut account = CostAccount::new(&mut rig.counters, &COSTS);
    rig.shadow
        .resolve(&found, true, rig.guest.tables(), &mut account);
    // The unsync leaf page goes, and comes back together with the new page of level 3.
    assert_eq!((rig.shadow.pages(), rig.cycles()), (5, 10_001));
    // A table that is used above the leaves cannot go unsync again.
    rig.exits();
    rig.rewrite(table, 9, START);
    assert_eq!(rig.exits(), [("table_write", 1)]);
}

#[test]
fn tables_without_a_page_are_written_freely() {
    let mut rig = plain(16);
    rig.apply(Operation::Spawn { process: 1 });
    rig.page(0, true);
    rig.exits();
    let table = rig.tables_of(START)[1];
    rig.tell(&[GuestEvent::TableFreed { table }]);
    rig.exits();
    rig.rewrite(table, 0, 0);
    assert_eq!(rig.exits(), []);
}

#[test]
fn isolation_doubles_the_cr3_loads_and_both_roots_are_remembered() {
    let mut rig = Rig::new(
        ShadowSetup {
            isolation: true,
            ..SETUP
        },
        0x10_000,
    );
    rig.page(0, true);
    rig.reset();
    rig.apply(Operation::SystemCalls { count: 5 });
    assert_eq!(rig.exits(), [("load_cr3", 10)]);
    assert_eq!(rig.cycles(), 10 * 1_000_000);
}

#[test]
fn the_oldest_pages_go_at_the_limit_and_the_roots_stay() {
    let mut rig = Rig::new(
        ShadowSetup {
            page_limit: 0,
            ..SETUP
        },
        200 << 21,
    );
    for page in 0..200 {
        rig.page(page << 9, true);
        assert!(rig.shadow.pages() <= MIN_PAGES);
    }
    rig.reset();
    let walk = rig.page(199 << 9, true);
    assert_eq!(
        (walk.failed_depth, walk.flushed, rig.exits()),
        (0, false, vec![])
    );
    assert!(rig.page(0, true).failed_depth > 0);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
}

#[test]
fn a_switch_to_shadow_bills_old_entries_as_refills_once() {
    let mut rig = plain(16);
    rig.pages(0..4, true);
    rig.shadow.clear(rig.guest.clock());
    rig.reset();
    assert_eq!(rig.shadow.pages(), 0);
    rig.pages(0..4, true);
    assert_eq!((rig.refill(), rig.cycles()), (100_000_004, 0));
    // The entries have been filled since: whatever takes them down again is not the switch's fault.
    let tables = rig.tables_of(START);
    for table in [tables[3], tables[2]] {
        rig.tell(&[GuestEvent::TableFreed { table }]);
    }
    rig.reset();
    rig.page(0, true);
    rig.page(5, true);
    assert_eq!((rig.refill(), rig.cycles()), (0, 2));
}
