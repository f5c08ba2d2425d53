//! The settings of a simulation besides the workload.

use crate::error::ModelError;
use crate::model::address::{PageSize, TableFormat};
use crate::model::core::CoreSetup;
use crate::model::guest::GuestSetup;
use crate::model::host_pages::HostPages;
use crate::model::machine::Machine;
use crate::model::mode::Translating;
use crate::model::shadow::ShadowStyle;
use crate::policy::{Policy, registry};

/// The shortest window in instructions: a block of references must fit well into it.
pub const SHORTEST_WINDOW: u64 = 10_000;

/// How the guest is virtualized and how the output is divided.
#[derive(Clone, Debug)]
pub struct Setup {
    pub machine: Machine,
    /// Format of the guest's page tables.
    pub guest_tables: TableFormat,
    /// Size of the guest's pages where the workload leaves it open (traces).
    pub guest_page: PageSize,
    /// Sizes of the pages with which the host maps the guest's memory.
    pub host_pages: HostPages,
    pub memory_bytes: u64,
    /// Page-table isolation in the guest.
    pub isolation: bool,
    /// How the VMM keeps shadow tables.
    pub shadow: ShadowStyle,
    /// Length of a window in the output, in instructions.
    pub window_instructions: u64,
    /// Stop after this many instructions.
    pub instruction_limit: Option<f64>,
    /// Treat every touched page as mapped: traces do not say what they mapped.
    pub map_on_touch: bool,
    /// Follow walk caches and data caches; without them every walk has its full length.
    pub caches: bool,
    pub seed: u64,
}

/// How one line of the output translates.
pub enum Choice {
    /// One mode, all the time.
    Fixed(Translating),
    /// A policy chooses between shadow and nested paging.
    Policy(Box<dyn Policy>),
    /// The best plan in hindsight, from the windows of both modes and the costs of switching.
    Oracle,
}

const FIXED: [(&str, Translating); 4] = [
    ("native", Translating::Native),
    ("shadow", Translating::Shadow),
    ("nested", Translating::Nested),
    ("agile", Translating::Agile),
];
const ORACLE: &str = "oracle";

impl Choice {
    /// The names of all choices: fixed ones, policies, the oracle.
    pub fn names() -> Vec<&'static str> {
        let fixed = FIXED.iter().map(|(name, _)| *name);
        fixed.chain(Self::policies()).chain([ORACLE]).collect()
    }

    /// The names of the policies, which alone take parameters.
    pub fn policies() -> Vec<&'static str> {
        let mut names = registry::names();
        names.retain(|name| fixed(name).is_none());
        names
    }

    /// The choice with that name. Fails on an unknown name, and on a wrong parameter of a policy.
    pub fn by_name(
        name: &str,
        parameters: Option<toml::Table>,
        setup: &Setup,
    ) -> Result<Self, ModelError> {
        if let Some(translating) = fixed(name) {
            return Ok(Self::Fixed(translating));
        }
        if name == ORACLE {
            return Ok(Self::Oracle);
        }
        let (costs, window) = (&setup.machine.costs, setup.window_instructions);
        registry::by_name(name, parameters, costs, window).map(Self::Policy)
    }
}

fn fixed(name: &str) -> Option<Translating> {
    let found = FIXED.iter().find(|(known, _)| *known == name);
    found.map(|(_, translating)| *translating)
}

impl Setup {
    /// A 64-bit guest with 4 KiB pages on a host with 2 MiB pages.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            guest_tables: TableFormat::Four,
            guest_page: PageSize::K4,
            host_pages: HostPages::of(PageSize::M2),
            memory_bytes: 4 << 30,
            isolation: false,
            shadow: ShadowStyle::KVM,
            window_instructions: 1_000_000,
            instruction_limit: None,
            map_on_touch: false,
            caches: true,
            seed: 1,
        }
    }

    /// Fails when such a simulation cannot run; names the field.
    pub fn check(&self) -> Result<(), ModelError> {
        self.machine.check()?;
        self.guest_tables.check(self.guest_page)?;
        let host = self.machine.host_tables;
        let mut sizes = self.host_pages.sizes();
        sizes.try_for_each(|size| host.check(size))?;
        if self.host_pages.end().0 > self.memory_bytes {
            let reason = "a range ends after the guest's memory";
            return Err(ModelError::field("host_ranges", reason));
        }
        if self.window_instructions < SHORTEST_WINDOW {
            let reason = format!("must be at least {SHORTEST_WINDOW} instructions");
            return Err(ModelError::field("window", reason));
        }
        if self
            .instruction_limit
            .is_some_and(|limit| limit.is_nan() || limit < 1.0)
        {
            return Err(ModelError::field("instructions", "must be at least 1"));
        }
        Ok(())
    }

    pub(super) fn guest(&self) -> GuestSetup {
        GuestSetup {
            isolation: self.isolation,
            pcid: self.machine.tlb.pcid,
            map_on_touch: self.map_on_touch.then_some(self.guest_page),
            ..GuestSetup::new(self.guest_tables, self.memory_bytes, &self.machine.costs)
        }
    }

    pub(super) fn core(&self, guest_page: PageSize) -> CoreSetup {
        CoreSetup {
            machine: self.machine.clone(),
            guest_tables: self.guest_tables,
            guest_page,
            host_pages: self.host_pages.clone(),
            isolation: self.isolation,
            memory_bytes: self.memory_bytes,
            shadow: self.shadow,
            caches: self.caches,
            walks: true,
            seed: self.seed,
        }
    }
}
