use super::rig::{COSTS, Rig, SETUP, START};
use crate::model::address::{Gfn, Gva};
use crate::model::cost_account::CostAccount;
use crate::model::guest_event::GuestEvent;
use crate::model::shadow::{Flush, ShadowSetup};
use crate::step::Operation;

fn agile() -> ShadowSetup {
    ShadowSetup {
        agile: true,
        ..SETUP
    }
}

fn rig() -> Rig {
    let mut rig = Rig::new(agile(), 64 << 12);
    rig.page(0, true);
    rig
}

#[test]
fn the_second_write_of_an_interval_sends_a_table_to_nested_mode() {
    let mut rig = rig();
    assert_eq!(rig.exits(), [("shadow_fill", 1), ("guest_fault", 1)]);
    let walk = rig.page(1, true);
    assert_eq!((walk.depth, walk.nested_from), (4, 4));
    let once = [("shadow_fill", 1), ("guest_fault", 1), ("table_write", 1)];
    assert_eq!(rig.exits(), once);
    rig.reset();
    let walk = rig.page(2, true);
    // The entry that leads to the nested table is filled once.
    assert_eq!((walk.depth, walk.nested_from, walk.failed_depth), (4, 3, 3));
    assert_eq!(rig.exits(), once);
    assert_eq!(rig.cycles(), 10_001);
    for page in 3..64 {
        assert_eq!(rig.page(page, true).nested_from, 3);
    }
    assert_eq!((rig.exits(), rig.shadow.pages()), (vec![], 3));
}

#[test]
fn a_quiet_table_returns_and_a_busy_one_stays() {
    let mut rig = rig();
    rig.pages(1..4, true);
    rig.interval();
    assert_eq!(rig.page(0, true).nested_from, 3);
    rig.page(4, true);
    rig.interval();
    assert_eq!(rig.page(0, true).nested_from, 3);
    rig.interval();
    rig.reset();
    let walk = rig.page(0, true);
    assert_eq!((walk.nested_from, walk.failed_depth), (4, 3));
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
    // Since an event was last charged, two intervals have each scanned one table.
    assert_eq!(rig.cycles(), 201);
}

#[test]
fn a_subtree_goes_nested_and_only_its_busy_tables_stay() {
    let mut rig = rig();
    let tables = rig.tables_of(START);
    for _ in 0..2 {
        rig.rewrite(tables[1], 7, 0);
    }
    assert_eq!((rig.page(0, true).nested_from, rig.shadow.pages()), (1, 1));
    rig.exits();
    rig.pages(1..9, true);
    assert_eq!(rig.exits(), []);
    rig.interval();
    rig.page(9, true);
    rig.interval();
    // The upper tables were quiet, the leaf table was not.
    assert_eq!(rig.page(0, true).nested_from, 3);
    rig.interval();
    assert_eq!(rig.page(0, true).nested_from, 4);
}

#[test]
fn a_busy_root_makes_the_whole_walk_nested() {
    let mut rig = rig();
    let root = rig.guest.root();
    for _ in 0..2 {
        rig.rewrite(root, 7, 0);
    }
    rig.exits();
    let walk = rig.page(0, true);
    assert_eq!((walk.depth, walk.nested_from, walk.failed_depth), (4, 0, 0));
    rig.page(7, true);
    rig.tell(&[GuestEvent::LoadCr3 {
        root,
        preserve: false,
    }]);
    assert_eq!((rig.exits(), rig.shadow.pages()), (vec![], 0));
}

#[test]
fn tables_that_another_root_uses_stay_in_shadow_mode() {
    let mut rig = rig();
    let mut found = rig.guest.translate(Gva(START), true).unwrap();
    let root = rig.guest.root();
    found.tables[0] = Gfn(4000);
    let mut account = CostAccount::new(&mut rig.counters, &COSTS);
    rig.shadow
        .resolve(&found, true, rig.guest.tables(), &mut account);
    assert_eq!(rig.shadow.pages(), 5);
    rig.reset();
    for _ in 0..2 {
        rig.rewrite(root, 7, 0);
    }
    assert_eq!((rig.shadow.pages(), rig.cycles()), (4, 10_000));
    let mut account = CostAccount::new(&mut rig.counters, &COSTS);
    let walk = rig
        .shadow
        .resolve(&found, true, rig.guest.tables(), &mut account);
    assert_eq!((walk.nested_from, walk.failed_depth), (4, 0));
}

#[test]
fn known_roots_and_dirty_bits_take_no_exit() {
    let mut rig = Rig::new(agile(), 64 << 12);
    assert!(!rig.page(0, false).writable);
    rig.apply(Operation::Spawn { process: 1 });
    rig.apply(Operation::Switch { process: 1 });
    rig.exits();
    rig.apply(Operation::Switch { process: 0 });
    assert!(rig.page(0, true).writable);
    assert_eq!(rig.exits(), []);
    let table = rig.tables_of(START)[3];
    rig.rewrite(table, 0, START);
    let flush = rig.tell(&[GuestEvent::Invlpg {
        address: Gva(START),
    }]);
    assert_eq!(
        (rig.exits(), flush),
        (vec![("table_write", 1)], vec![Flush::Page(Gva(START))])
    );
}
