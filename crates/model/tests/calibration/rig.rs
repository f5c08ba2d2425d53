//! One guest that two cores follow, one with nested and one with shadow paging.

use vtax_model::error::ModelError;
use vtax_model::model::address::{Gva, PageSize, TableFormat};
use vtax_model::model::core::{Core, CoreSetup};
use vtax_model::model::counters::{Counters, Exit};
use vtax_model::model::guest::{Guest, GuestSetup};
use vtax_model::model::guest_event::GuestEvent;
use vtax_model::model::host_pages::HostPages;
use vtax_model::model::machine::Machine;
use vtax_model::model::mode::Translating;
use vtax_model::model::shadow::ShadowStyle;
use vtax_model::step::Operation;

pub const PAGE: u64 = 4096;
const MEMORY_BYTES: u64 = 1 << 30;

/// A value for each way of paging.
#[derive(Clone, Copy, Debug)]
pub struct Both<T> {
    pub nested: T,
    pub shadow: T,
}

/// The guest and its two cores.
pub struct Rig {
    guest: Guest,
    nested: Core,
    shadow: Core,
    events: Vec<GuestEvent>,
    clock_hz: f64,
}

impl Rig {
    /// A guest with four-level tables and 4 KiB pages, on a host that maps 2 MiB pages.
    pub fn new(machine: &Machine, isolation: bool) -> Result<Self, ModelError> {
        let setup = CoreSetup {
            machine: machine.clone(),
            guest_tables: TableFormat::Four,
            guest_page: PageSize::K4,
            host_pages: HostPages::of(PageSize::M2),
            isolation,
            memory_bytes: MEMORY_BYTES,
            shadow: ShadowStyle::KVM,
            caches: true,
            walks: true,
            seed: 1,
        };
        let guest = GuestSetup {
            isolation,
            pcid: machine.tlb.pcid,
            ..GuestSetup::new(TableFormat::Four, MEMORY_BYTES, &machine.costs)
        };
        Ok(Self {
            guest: Guest::new(guest)?,
            nested: Core::new(&setup, Translating::Nested)?,
            shadow: Core::new(&setup, Translating::Shadow)?,
            events: Vec::new(),
            clock_hz: machine.clock_hz,
        })
    }

    pub fn counters(&self) -> Both<Counters> {
        Both {
            nested: self.nested.counters(),
            shadow: self.shadow.counters(),
        }
    }

    /// Modelled microseconds of `work`, once for each way of paging.
    pub fn time_us(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), ModelError>,
    ) -> Result<Both<f64>, ModelError> {
        let before = self.counters();
        work(self)?;
        let after = self.counters();
        let scale = 1e6 / self.clock_hz;
        let time = |after: &Counters, before: &Counters| {
            (after.cycles.total() - before.cycles.total()) * scale
        };
        Ok(Both {
            nested: time(&after.nested, &before.nested),
            shadow: time(&after.shadow, &before.shadow),
        })
    }

    /// Carries out an operation of the guest's software.
    pub fn apply(&mut self, operation: Operation) -> Result<(), ModelError> {
        self.guest.apply(&operation, &mut self.events)?;
        self.tell();
        Ok(())
    }

    /// Makes one reference, with the fault that it may cause.
    pub fn touch(&mut self, address: u64, write: bool) -> Result<(), ModelError> {
        let address = Gva(address);
        let found = match self.guest.translate(address, write) {
            Ok(found) => found,
            Err(walk) => {
                self.nested.guest_fault(address, &walk);
                self.shadow.guest_fault(address, &walk);
                self.guest.handle_fault(address, write, &mut self.events)?;
                self.tell();
                let again = self.guest.translate(address, write);
                again.map_err(|_| ModelError::Source("the fault was not handled".to_owned()))?
            }
        };
        let tables = self.guest.tables();
        self.nested.access(address, &found, write, tables);
        self.shadow.access(address, &found, write, tables);
        Ok(())
    }

    /// Touches consecutive pages, with one reference each.
    pub fn touch_pages(&mut self, start: u64, pages: u64, write: bool) -> Result<(), ModelError> {
        (0..pages).try_for_each(|page| self.touch(start + page * PAGE, write))
    }

    /// Makes a write that the guest's tables forbid and that its kernel answers with a signal: the
    /// fault, and one entry into the kernel and back, which costs as much as that of a system call.
    pub fn forbidden_write(&mut self, address: u64) -> Result<(), ModelError> {
        let address = Gva(address);
        if let Err(walk) = self.guest.translate(address, true) {
            self.nested.guest_fault(address, &walk);
            self.shadow.guest_fault(address, &walk);
        }
        self.apply(Operation::SystemCalls { count: 1 })
    }

    fn tell(&mut self) {
        for event in &self.events {
            self.nested.guest_event(event, self.guest.tables());
            self.shadow.guest_event(event, self.guest.tables());
        }
        self.events.clear();
    }
}

pub fn exits(counters: &Counters, cause: Exit) -> f64 {
    counters.exits[cause as usize]
}
