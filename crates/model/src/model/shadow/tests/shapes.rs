use super::rig::{COSTS, Rig, SETUP, START};
use crate::model::address::{Gfn, Gpa, Gva, PageSize, TableFormat};
use crate::model::cost_account::CostAccount;
use crate::model::guest_event::{GuestEvent, Translation};
use crate::model::host_pages::{HostPages, HostRange};
use crate::model::shadow::{Flush, ShadowSetup, ShadowStyle};
use crate::step::Operation;

fn palacios() -> ShadowSetup {
    ShadowSetup {
        style: ShadowStyle::Palacios,
        ..SETUP
    }
}

#[test]
fn palacios_protects_leaf_tables_too() {
    let mut rig = Rig::new(palacios(), 0x10_000);
    rig.page(0, true);
    assert_eq!(rig.exits(), [("shadow_fill", 1), ("guest_fault", 1)]);
    for page in 1..4 {
        rig.page(page, true);
        let exits = [("shadow_fill", 1), ("guest_fault", 1), ("table_write", 1)];
        assert_eq!(rig.exits(), exits);
    }
    let table = rig.tables_of(START)[3];
    assert_eq!(rig.rewrite(table, 3, START), Flush::Page(Gva(START)));
    assert_eq!(rig.rewrite(table, 3, START), Flush::None);
    rig.exits();
    rig.page(3, true);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
}

#[test]
fn palacios_finds_every_root_again() {
    let mut rig = Rig::new(palacios(), 0x10_000);
    rig.page(0, true);
    for process in 1..=9 {
        rig.apply(Operation::Spawn { process });
        rig.apply(Operation::Switch { process });
    }
    rig.reset();
    rig.apply(Operation::Switch { process: 0 });
    assert_eq!(rig.cycles(), 1_000_000);
    rig.page(0, true);
    assert_eq!(rig.exits(), [("load_cr3", 1)]);
}

#[test]
fn a_32_bit_guest_has_two_pages_per_table_under_a_pae_root() {
    let setup = ShadowSetup {
        guest_tables: TableFormat::Two,
        ..SETUP
    };
    let mut rig = Rig::new(setup, 8 << 20);
    let walk = rig.page(0, true);
    // Root of four entries, one quarter of the directory, one half of a page table.
    assert_eq!((walk.depth, rig.shadow.pages()), (2, 3));
    assert_eq!(rig.page(512, true).depth, 2);
    assert_eq!(rig.shadow.pages(), 4);
    rig.page(1024, true);
    assert_eq!(rig.shadow.pages(), 5);
    let table = rig.tables_of(START)[1];
    rig.exits();
    // The second half's page protected the table again; a write to either half drops all of it.
    rig.rewrite(table, 0, START);
    rig.rewrite(table, 1023, START);
    assert_eq!(rig.exits(), [("unsync", 1)]);
    let directory = rig.guest.root();
    assert_eq!(rig.rewrite(directory, 256, START), Flush::All);
    assert_eq!(rig.exits(), [("table_write", 1)]);
    assert_eq!(rig.page(0, true).failed_depth, 1);
    assert_eq!(rig.page(512, true).failed_depth, 1);
    assert_eq!(rig.page(1024, true).failed_depth, 0);
}

#[test]
fn a_large_entry_needs_a_large_page_on_both_sides_and_the_style() {
    let large = ShadowSetup {
        guest_page: PageSize::M2,
        host_pages: HostPages::of(PageSize::M2),
        ..SETUP
    };
    let small_host = ShadowSetup {
        host_pages: HostPages::of(PageSize::K4),
        ..large.clone()
    };
    let palacios = ShadowSetup {
        style: ShadowStyle::Palacios,
        ..large.clone()
    };
    for (setup, size, depth) in [
        (large, PageSize::M2, 3),
        (small_host, PageSize::K4, 4),
        (palacios, PageSize::K4, 4),
    ] {
        let mut rig = Rig::new(setup, 4 << 20);
        let walk = rig.page(5, true);
        assert_eq!((walk.size, walk.depth), (size, depth));
        assert!(walk.writable);
        rig.exits();
        rig.page(100, true);
        let fills = usize::from(size == PageSize::K4);
        assert_eq!(rig.exits().len(), fills);
    }
}

#[test]
fn a_1_gib_page_is_split_as_its_host_is() {
    let setup = ShadowSetup {
        guest_page: PageSize::G1,
        ..SETUP
    };
    let mut whole = Rig::new(setup.clone(), 1 << 30);
    assert_eq!(whole.page(0, true).size, PageSize::K4);
    let start = whole
        .guest
        .translate(Gva(START), true)
        .unwrap()
        .frame
        .address();
    let huge = HostRange {
        start,
        end: Gpa(start.0 + (1 << 29)),
        size: PageSize::M2,
    };
    let host_pages = HostPages::with(PageSize::K4, vec![huge]).unwrap();
    let mut rig = Rig::new(
        ShadowSetup {
            host_pages,
            ..setup
        },
        1 << 30,
    );
    let half = (1 << 29) >> 12;
    for (page, size, depth) in [
        (0, PageSize::M2, 3),
        (half, PageSize::K4, 4),
        (half - 1, PageSize::M2, 3),
    ] {
        let walk = rig.page(page, true);
        assert_eq!((walk.size, walk.depth), (size, depth), "page {page}");
    }
    rig.exits();
    assert_eq!(
        rig.page(100, true).failed_depth,
        0,
        "the 2 MiB entry maps it"
    );
    assert_eq!(rig.page(half + 100, true).failed_depth, 4);
}

#[test]
fn a_split_large_page_changes_its_pages_at_the_first_write() {
    let setup = ShadowSetup {
        guest_page: PageSize::M2,
        ..SETUP
    };
    let mut rig = Rig::new(setup, 4 << 20);
    assert!(!rig.page(0, false).writable);
    assert!(!rig.page(9, false).writable);
    rig.exits();
    assert!(rig.page(9, true).writable);
    assert_eq!(rig.exits(), [("shadow_dirty", 1)]);
    assert!(rig.page(0, false).writable);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
    // The block around page 9 was filled together with page 9.
    assert!(rig.page(8, true).writable);
    assert_eq!(rig.exits(), []);
}

#[test]
fn a_4_mib_page_takes_two_entries() {
    let setup = ShadowSetup {
        guest_tables: TableFormat::Two,
        guest_page: PageSize::M2,
        host_pages: HostPages::of(PageSize::M2),
        ..SETUP
    };
    let mut rig = Rig::new(setup, 4 << 20);
    let walk = rig.page(0, true);
    assert_eq!((walk.size, walk.depth), (PageSize::M2, 1));
    rig.exits();
    assert_eq!(rig.page(512, true).entries[0].0, walk.entries[0].0 + 8);
    assert_eq!(rig.exits(), [("shadow_fill", 1)]);
}

#[test]
fn five_levels() {
    let setup = ShadowSetup {
        guest_tables: TableFormat::Five,
        ..SETUP
    };
    let mut rig = Rig::new(setup, 0x10_000);
    assert_eq!((rig.page(0, true).depth, rig.shadow.pages()), (5, 5));
}

#[test]
fn nonsense_is_no_panic() {
    let two = TableFormat::Two;
    for setup in [
        SETUP,
        palacios(),
        ShadowSetup {
            agile: true,
            ..SETUP
        },
        ShadowSetup {
            guest_tables: two,
            ..SETUP
        },
        ShadowSetup {
            guest_tables: two,
            ..palacios()
        },
    ] {
        feed_nonsense(Rig::new(setup, 0x10_000));
    }
}

fn feed_nonsense(mut rig: Rig) {
    rig.page(0, true);
    let found = rig.guest.translate(Gva(START), false).unwrap();
    let table = Gfn(u64::MAX >> 12);
    for (depth, size) in [(0, PageSize::G1), (9, PageSize::K4), (2, PageSize::M2)] {
        let broken = Translation {
            depth,
            size,
            page: Gva(u64::MAX),
            tables: [table; 5],
            frame: Gfn(u64::MAX),
            dirty: false,
            ..found
        };
        let mut account = CostAccount::new(&mut rig.counters, &COSTS);
        rig.shadow
            .resolve(&broken, true, rig.guest.tables(), &mut account);
    }
    let write = GuestEvent::TableWrite {
        table,
        level: 200,
        index: u16::MAX,
        address: Gva(u64::MAX),
        was_present: false,
        present: true,
    };
    let load = GuestEvent::LoadCr3 {
        root: table,
        preserve: false,
    };
    let invlpg = GuestEvent::Invlpg {
        address: Gva(u64::MAX),
    };
    rig.tell(&[write, write, write, load, invlpg, load]);
    rig.interval();
    rig.interval();
    rig.tell(&[GuestEvent::TableFreed { table }, write]);
    rig.page(0, true);
}
