use std::mem::take;

use crate::model::address::{Gfn, Gva, PageSize, TableFormat};
use crate::model::cost_account::CostAccount;
use crate::model::counters::{Counters, Exit};
use crate::model::guest::{Guest, GuestSetup};
use crate::model::guest_event::GuestEvent;
use crate::model::host_pages::HostPages;
use crate::model::machine::Costs;
use crate::model::shadow::{Flush, ShadowSetup, ShadowStyle, ShadowTables, ShadowWalk};
use crate::step::Operation;

/// Powers of ten, so that a sum shows its parts.
pub const COSTS: Costs = Costs {
    exit: 0,
    nested_fault: 0,
    shadow_fill: 1,
    reflect_fault: 0,
    table_write: 0,
    unsync: 0,
    sync_table: 1_000,
    sync_entry: 100,
    zap: 10_000,
    invlpg: 10,
    load_cr3: 1_000_000,
    build_root: 100_000_000,
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

/// Start of the range that the first process maps.
pub const START: u64 = 0x4000_0000;

pub struct Rig {
    pub guest: Guest,
    pub shadow: ShadowTables,
    pub counters: Counters,
}

pub const SETUP: ShadowSetup = ShadowSetup {
    style: ShadowStyle::KVM,
    guest_tables: TableFormat::Four,
    host_tables: TableFormat::Four,
    guest_page: PageSize::K4,
    host_pages: HostPages::of(PageSize::K4),
    isolation: false,
    agile: false,
    page_limit: 1 << 20,
};

impl Rig {
    /// A guest with `bytes` mapped at [`START`], not touched yet.
    pub fn new(setup: ShadowSetup, bytes: u64) -> Self {
        let guest = GuestSetup {
            isolation: setup.isolation,
            ..GuestSetup::new(setup.guest_tables, 1 << 32, &COSTS)
        };
        let mut rig = Self {
            guest: Guest::new(guest).unwrap(),
            shadow: ShadowTables::new(&setup),
            counters: Counters::default(),
        };
        rig.apply(Operation::Map {
            start: Gva(START),
            bytes,
            size: setup.guest_page,
        });
        rig
    }

    /// Makes a reference, with the guest's page faults.
    pub fn touch(&mut self, address: u64, write: bool) -> ShadowWalk {
        for _ in 0..3 {
            match self.guest.translate(Gva(address), write) {
                Ok(found) => {
                    let mut account = CostAccount::new(&mut self.counters, &COSTS);
                    let tables = self.guest.tables();
                    let at = Gva(address >> 12 << 12);
                    return self
                        .shadow
                        .resolve_at(at, &found, write, tables, &mut account);
                }
                Err(walk) => {
                    let mut account = CostAccount::new(&mut self.counters, &COSTS);
                    self.shadow.guest_fault(&walk, &mut account);
                    let mut events = Vec::new();
                    self.guest
                        .handle_fault(Gva(address), write, &mut events)
                        .unwrap();
                    self.tell(&events);
                }
            }
        }
        panic!("the guest does not map {address:#x}");
    }

    /// Touches page `number` of the range at [`START`].
    pub fn page(&mut self, number: u64, write: bool) -> ShadowWalk {
        self.touch(START + (number << 12), write)
    }

    pub fn pages(&mut self, numbers: std::ops::Range<u64>, write: bool) {
        for number in numbers {
            self.page(number, write);
        }
    }

    pub fn apply(&mut self, operation: Operation) -> Vec<Flush> {
        let mut events = Vec::new();
        self.guest.apply(&operation, &mut events).unwrap();
        self.tell(&events)
    }

    pub fn tell(&mut self, events: &[GuestEvent]) -> Vec<Flush> {
        let mut account = CostAccount::new(&mut self.counters, &COSTS);
        let tables = self.guest.tables();
        let tell = |event| self.shadow.event(event, tables, &mut account);
        events.iter().map(tell).collect()
    }

    pub fn unmap(&mut self, first: u64, pages: u64) -> Vec<Flush> {
        self.apply(Operation::Unmap {
            start: Gva(START + (first << 12)),
            bytes: pages << 12,
        })
    }

    pub fn interval(&mut self) {
        self.shadow.interval(self.guest.tables());
    }

    /// Exits since the last call by cause, without causes that did not occur.
    pub fn exits(&mut self) -> Vec<(&'static str, u64)> {
        let exits = Exit::ALL.into_iter().zip(take(&mut self.counters.exits));
        let seen = exits.filter(|(_, count)| *count > 0.0);
        seen.map(|(exit, count)| (exit.name(), whole(count)))
            .collect()
    }

    /// Cycles of exits since the last call.
    pub fn cycles(&mut self) -> u64 {
        whole(take(&mut self.counters.cycles.exits))
    }

    /// Flooded pages since the last call.
    pub fn flooded(&mut self) -> u64 {
        whole(take(&mut self.counters.flooded))
    }

    /// Cycles of refills since the last call.
    pub fn refill(&mut self) -> u64 {
        whole(take(&mut self.counters.cycles.refill))
    }

    /// Forgets what was counted so far.
    pub fn reset(&mut self) {
        self.counters = Counters::default();
    }

    /// The tables on the way to an address, root first.
    pub fn tables_of(&mut self, address: u64) -> Vec<Gfn> {
        let found = self.guest.translate(Gva(address), false).unwrap();
        found.tables[..usize::from(found.depth)].to_vec()
    }

    /// The guest writes an entry of a table with its existing content.
    pub fn rewrite(&mut self, table: Gfn, index: u16, address: u64) -> Flush {
        let event = GuestEvent::TableWrite {
            table,
            level: self.guest.tables().level(table).unwrap(),
            index,
            address: Gva(address),
            was_present: true,
            present: true,
        };
        self.tell(&[event])[0]
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small counts
fn whole(count: f64) -> u64 {
    count as u64
}
