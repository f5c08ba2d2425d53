//! Compares the shadow tables with a plain reference, on random histories of a guest.

#![allow(clippy::unwrap_used)]

mod agile;
mod expected;
mod reference;

use proptest::prelude::*;

use agile::AgileReference;
use expected::{Expected, Outcome};
use reference::Reference;
use vtax_model::model::address::{Gpa, Gva, PageSize, TableFormat};
use vtax_model::model::cost_account::CostAccount;
use vtax_model::model::counters::Counters;
use vtax_model::model::guest::{Guest, GuestSetup};
use vtax_model::model::guest_event::{GuestEvent, PartialWalk, Translation};
use vtax_model::model::host_pages::{HostPages, HostRange};
use vtax_model::model::machine::Costs;
use vtax_model::model::shadow::{MIN_PAGES, ShadowSetup, ShadowStyle, ShadowTables, ShadowWalk};
use vtax_model::step::Operation;

/// The costs are all different, so that no two mistakes cancel out.
const COSTS: Costs = Costs {
    exit: 1_009,
    nested_fault: 0,
    shadow_fill: 2_003,
    reflect_fault: 3_001,
    table_write: 4_001,
    unsync: 5_003,
    sync_table: 6_007,
    sync_entry: 71,
    zap: 8_009,
    invlpg: 9_001,
    load_cr3: 10_007,
    build_root: 11_003,
    other: 0,
    policy: 0,
    switch_to_nested: 0,
    switch_to_shadow: 0,
    guest_fault: 0,
    system_call: 0,
    context_switch: 0,
    guest_load_cr3: 0,
    guest_invlpg: 0,
};

/// Ranges that each process maps, in 64-page pieces of different tables and directories.
const REGIONS: u64 = 12;
const REGION_BYTES: u64 = 64 << 12;

fn region(number: u64, format: TableFormat) -> u64 {
    match format {
        TableFormat::Two => 0x1000_0000 + (number << 22),
        _ => 0x4000_0000 + ((number % 2) << 21) + ((number / 2) << 30) + ((number / 6) << 39),
    }
}

#[derive(Clone, Debug)]
enum Action {
    Touch(u64, u64, bool),
    /// All pages of a range.
    Sweep(u64, bool),
    /// One page of each range: with a few processes, more tables than shadow pages.
    Populate(u64, bool),
    Guest(Operation),
    Clear,
    Interval,
}

fn actions(format: TableFormat, page: PageSize) -> impl Strategy<Value = Vec<Action>> {
    let bytes = if page == PageSize::K4 {
        REGION_BYTES
    } else {
        4 << 20
    };
    let range = (0..REGIONS, 0..64_u64, 1..64_u64).prop_map(move |(at, first, pages)| {
        let unit = bytes / 64;
        // Large pages are unmapped and protected as a whole.
        let (first, pages) = if page == PageSize::K4 {
            (first, pages)
        } else {
            (0, 64)
        };
        (
            Gva(region(at, format) + first * unit),
            pages.min(64 - first) * unit,
        )
    });
    let process = 0..10_u32;
    let touch = (0..REGIONS, 0..64_u64, any::<bool>());
    let action = prop_oneof![
        30 => touch.prop_map(|(at, page, write)| Action::Touch(at, page, write)),
        4 => (0..REGIONS, any::<bool>()).prop_map(|(at, write)| Action::Sweep(at, write)),
        6 => (0..64_u64, any::<bool>()).prop_map(|(page, write)| Action::Populate(page, write)),
        4 => process.clone().prop_map(|child| Action::Guest(Operation::Fork { child })),
        8 => process.clone().prop_map(|process| Action::Guest(Operation::Switch { process })),
        2 => process.prop_map(|process| Action::Guest(Operation::Exit { process })),
        3 => range.clone().prop_map(|(start, bytes)| {
            Action::Guest(Operation::Unmap { start, bytes })
        }),
        3 => range.clone().prop_map(move |(start, bytes)| {
            Action::Guest(Operation::Map { start, bytes, size: page })
        }),
        4 => (range, any::<bool>()).prop_map(|((start, bytes), writable)| {
            Action::Guest(Operation::Protect { start, bytes, writable })
        }),
        1 => Just(Action::Guest(Operation::SystemCalls { count: 1 })),
        1 => Just(Action::Clear),
        1 => Just(Action::Interval),
    ];
    proptest::collection::vec(action, 1..120)
}

fn styles() -> impl Strategy<Value = ShadowStyle> {
    let kvm = (
        any::<bool>(),
        prop_oneof![Just(0), Just(3), Just(8)],
        1..4_u8,
    );
    let kvm = kvm.prop_map(|(unsync, prefetch, flood)| ShadowStyle::Kvm {
        unsync,
        prefetch,
        flood,
    });
    prop_oneof![4 => kvm, 1 => Just(ShadowStyle::Palacios)]
}

fn setup(style: ShadowStyle, guest_tables: TableFormat) -> ShadowSetup {
    ShadowSetup {
        style,
        guest_tables,
        host_tables: TableFormat::Four,
        guest_page: PageSize::K4,
        host_pages: HostPages::of(PageSize::K4),
        isolation: false,
        agile: false,
        page_limit: MIN_PAGES,
    }
}

/// What follows the guest: the shadow tables, with or without their reference.
trait Follower {
    fn fault(&mut self, walk: &PartialWalk);
    fn event(&mut self, event: &GuestEvent, guest: &Guest);
    fn resolve(&mut self, at: Gva, found: &Translation, write: bool, guest: &Guest);
    fn clear(&mut self, clock: u64);
    fn interval(&mut self, guest: &Guest);
}

/// Runs a history. Operations that the guest refuses are part of it.
fn run(actions: &[Action], setup: GuestSetup, page: PageSize, follower: &mut dyn Follower) {
    let format = setup.tables;
    let bytes = if page == PageSize::K4 {
        REGION_BYTES
    } else {
        4 << 20
    };
    let mut guest = Guest::new(setup).expect("the setup is valid");
    for at in 0..REGIONS {
        let operation = Operation::Map {
            start: Gva(region(at, format)),
            bytes,
            size: page,
        };
        apply(&mut guest, &operation, follower);
    }
    for action in actions {
        match action {
            Action::Touch(at, page, write) => {
                let address = region(*at, format) + page * (bytes / 64);
                touch(&mut guest, Gva(address), *write, follower);
            }
            Action::Sweep(at, write) => {
                for page in 0..64 {
                    let address = region(*at, format) + page * (bytes / 64);
                    touch(&mut guest, Gva(address), *write, follower);
                }
            }
            Action::Populate(page, write) => {
                for at in 0..REGIONS {
                    let address = region(at, format) + page * (bytes / 64);
                    touch(&mut guest, Gva(address), *write, follower);
                }
            }
            Action::Guest(operation) => apply(&mut guest, operation, follower),
            Action::Clear => follower.clear(guest.clock()),
            Action::Interval => follower.interval(&guest),
        }
    }
}

fn apply(guest: &mut Guest, operation: &Operation, follower: &mut dyn Follower) {
    let mut events = Vec::new();
    let _refused = guest.apply(operation, &mut events);
    for event in &events {
        follower.event(event, guest);
    }
}

fn touch(guest: &mut Guest, at: Gva, write: bool, follower: &mut dyn Follower) {
    for _ in 0..3 {
        match guest.translate(at, write) {
            Ok(found) => return follower.resolve(at, &found, write, guest),
            Err(walk) => {
                let mut events = Vec::new();
                let handled = guest.handle_fault(at, write, &mut events);
                follower.fault(&walk);
                for event in &events {
                    follower.event(event, guest);
                }
                if handled.is_err() {
                    return;
                }
            }
        }
    }
}

struct Model {
    setup: ShadowSetup,
    shadow: ShadowTables,
    counters: Counters,
    walks: Vec<ShadowWalk>,
}

impl Model {
    fn new(setup: ShadowSetup) -> Self {
        Self {
            shadow: ShadowTables::new(&setup),
            setup,
            counters: Counters::default(),
            walks: Vec::new(),
        }
    }

    fn check(&self, at: Gva, found: &Translation, write: bool, walk: &ShadowWalk) {
        let format = self.setup.guest_tables;
        assert!(self.shadow.pages() <= self.setup.page_limit, "page limit");
        assert!(!write || walk.writable, "a write needs a writable entry");
        assert!(
            !walk.writable || (found.writable && found.dirty),
            "too much allowed"
        );
        let inside = at.0 % (1 << format.span(found.size.level()));
        let host = self.setup.host_pages.at(Gpa(found.frame.0 * 4096 + inside));
        let size = match self.setup.style {
            ShadowStyle::Kvm { .. } => found.size.min(host),
            ShadowStyle::Palacios => PageSize::K4,
        };
        let turned = walk.nested_from < walk.depth;
        assert!(turned || walk.size == size, "the size of the entry");
        assert!(walk.nested_from <= walk.depth && walk.failed_depth <= walk.depth);
        assert!(self.setup.agile || walk.nested_from == walk.depth);
        let reads = &walk.entries[..usize::from(walk.nested_from)];
        for (step, entry) in (0..).zip(reads) {
            let level = format.levels() - step;
            let offset = if self.setup.has_guest_layout() {
                u64::from(format.index(at.0, level)) * format.entry_bytes()
            } else {
                ((at.0 >> (12 + 9 * (level - 1))) & 511) * 8
            };
            assert_eq!(
                entry.0 & 4095,
                offset,
                "the place of an entry of level {level}"
            );
        }
    }
}

impl Follower for Model {
    fn fault(&mut self, walk: &PartialWalk) {
        let mut account = CostAccount::new(&mut self.counters, &COSTS);
        self.shadow.guest_fault(walk, &mut account);
    }

    fn event(&mut self, event: &GuestEvent, guest: &Guest) {
        let mut account = CostAccount::new(&mut self.counters, &COSTS);
        self.shadow.event(event, guest.tables(), &mut account);
    }

    fn resolve(&mut self, at: Gva, found: &Translation, write: bool, guest: &Guest) {
        let mut account = CostAccount::new(&mut self.counters, &COSTS);
        let walk = self
            .shadow
            .resolve_at(at, found, write, guest.tables(), &mut account);
        self.check(at, found, write, &walk);
        let exits = self.counters.total_exits();
        let mut account = CostAccount::new(&mut self.counters, &COSTS);
        let again = self
            .shadow
            .resolve_at(at, found, write, guest.tables(), &mut account);
        assert!(
            exits.total_cmp(&self.counters.total_exits()).is_eq(),
            "a second exit"
        );
        assert_eq!((again.entries, again.failed_depth), (walk.entries, 0));
        self.walks.push(walk);
    }

    fn clear(&mut self, clock: u64) {
        self.shadow.clear(clock);
    }

    fn interval(&mut self, guest: &Guest) {
        self.shadow.interval(guest.tables());
    }
}

/// The model and a reference side by side.
struct Both<R> {
    model: Model,
    reference: R,
    expected: Counters,
}

impl<R: Expected> Both<R> {
    fn new(setup: ShadowSetup, reference: R) -> Self {
        Self {
            model: Model::new(setup),
            reference,
            expected: Counters::default(),
        }
    }

    fn compare(&self) {
        assert_eq!(self.model.counters, self.expected);
        assert_eq!(self.model.shadow.pages(), self.reference.pages());
    }
}

impl<R: Expected> Follower for Both<R> {
    fn fault(&mut self, walk: &PartialWalk) {
        self.model.fault(walk);
        let mut account = CostAccount::new(&mut self.expected, &COSTS);
        self.reference.fault(walk, &mut account);
        self.compare();
    }

    fn event(&mut self, event: &GuestEvent, guest: &Guest) {
        self.model.event(event, guest);
        let mut account = CostAccount::new(&mut self.expected, &COSTS);
        self.reference.event(event, guest.tables(), &mut account);
        self.compare();
    }

    fn resolve(&mut self, at: Gva, found: &Translation, write: bool, guest: &Guest) {
        self.model.resolve(at, found, write, guest);
        let mut account = CostAccount::new(&mut self.expected, &COSTS);
        let tables = guest.tables();
        let expected = self
            .reference
            .resolve(at, found, write, tables, &mut account);
        let walk = self.model.walks.pop().expect("the model walked");
        let outcome = Outcome {
            failed_depth: walk.failed_depth,
            nested_from: walk.nested_from,
            writable: walk.writable,
            flushed: walk.flushed,
        };
        assert_eq!(outcome, expected);
        self.compare();
    }

    fn clear(&mut self, clock: u64) {
        self.model.clear(clock);
        self.reference.clear(clock);
    }

    fn interval(&mut self, guest: &Guest) {
        self.model.interval(guest);
        self.reference.interval(guest.tables());
    }
}

fn guest(format: TableFormat, isolation: bool, pcid: bool) -> GuestSetup {
    GuestSetup {
        isolation,
        pcid,
        ..GuestSetup::new(format, 1 << 30, &COSTS)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_exit_and_cycle_agrees_with_the_reference(
        actions in actions(TableFormat::Four, PageSize::K4),
        style in styles(),
        isolation in any::<bool>(),
        pcid in any::<bool>(),
    ) {
        let setup = setup(style, TableFormat::Four);
        let limit = setup.page_limit;
        let mut both = Both::new(setup, Reference::new(style, limit));
        run(&actions, guest(TableFormat::Four, isolation, pcid), PageSize::K4, &mut both);
    }

    #[test]
    fn agile_paging_agrees_with_its_reference(
        actions in actions(TableFormat::Four, PageSize::K4),
        prefetch in prop_oneof![Just(0), Just(8)],
        isolation in any::<bool>(),
    ) {
        let style = ShadowStyle::Kvm { unsync: true, prefetch, flood: 3 };
        let setup = ShadowSetup { agile: true, ..setup(style, TableFormat::Four) };
        let limit = setup.page_limit;
        let actions: Vec<Action> = actions
            .into_iter()
            .filter(|action| !matches!(action, Action::Clear))
            .collect();
        let mut both = Both::new(setup, AgileReference::new(prefetch, limit));
        run(&actions, guest(TableFormat::Four, isolation, false), PageSize::K4, &mut both);
    }

    #[test]
    fn every_shape_translates_right_and_the_same_way_twice(
        (format, page, actions) in shapes(),
        style in styles(),
        host_pages in host_pages(),
        agile in any::<bool>(),
        isolation in any::<bool>(),
    ) {
        let setup = ShadowSetup { host_pages, agile, isolation, ..setup(style, format) };
        let play = || {
            let mut model = Model::new(setup.clone());
            run(&actions, guest(format, isolation, false), page, &mut model);
            (model.counters, model.walks)
        };
        prop_assert_eq!(play(), play());
    }
}

/// Pages of one size, or of 2 MiB in every second piece of memory.
fn host_pages() -> impl Strategy<Value = HostPages> {
    let pieces = (0..(1_u64 << 30) >> 21).step_by(2);
    let ranges = pieces.map(|piece| HostRange {
        start: Gpa(piece << 21),
        end: Gpa((piece + 1) << 21),
        size: PageSize::M2,
    });
    let mixed = HostPages::with(PageSize::K4, ranges.collect()).unwrap();
    prop_oneof![
        Just(HostPages::of(PageSize::K4)),
        Just(HostPages::of(PageSize::M2)),
        Just(mixed)
    ]
}

fn shapes() -> impl Strategy<Value = (TableFormat, PageSize, Vec<Action>)> {
    let formats = prop_oneof![
        Just(TableFormat::Two),
        Just(TableFormat::Four),
        Just(TableFormat::Five)
    ];
    let pages = prop_oneof![Just(PageSize::K4), Just(PageSize::M2)];
    (formats, pages)
        .prop_flat_map(|(format, page)| (Just(format), Just(page), actions(format, page)))
}
