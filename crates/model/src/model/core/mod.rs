//! One simulated core in one paging mode: its TLBs, its page walker, and what it counts.
//!
//! A core sees every reference after the guest's own model has translated it, so walks only decide
//! what is *read*, never what is *found*. [`Core::access`] is the hot path: it does not allocate,
//! counts in integers, and leaves the cycles of walks to [`Core::counters`].

mod array;
mod block;
mod data_cache;
mod entries;
mod native;
mod nested;
mod order;
mod recency;
mod rings;
mod scanned;
mod shadow;
mod spaces;
mod tag;
#[cfg(test)]
mod tests;
mod tlb;
mod walk_cache;

pub use entries::EntryCounts;
pub use native::{GUEST_BASE, host_address};
pub use nested::host_entry_address;

use crate::error::ModelError;
use crate::model::address::{Gfn, Gpa, Gva, Hpa, PAGE_SHIFT, PageSize, TableFormat};
use crate::model::cost_account::CostAccount;
use crate::model::counters::{Counters, Exit};
use crate::model::guest::{GuestTables, MAX_MEMORY_BYTES};
use crate::model::guest_event::{GuestEvent, PartialWalk, Translation};
use crate::model::host_pages::HostPages;
use crate::model::machine::{Machine, WalkCaches as WalkDescription};
use crate::model::mode::Translating;
use crate::model::shadow::{ShadowSetup, ShadowStyle};
use vtax_sys::kvm::PagingMode;

use data_cache::DataCaches;
use native::Radix;
use nested::Host;
use shadow::{Shadow, walked_format};
use spaces::Spaces;
use tlb::{Found, Tlb};
use walk_cache::WalkCaches;

#[derive(Clone, Debug, PartialEq)]
pub struct CoreSetup {
    pub machine: Machine,
    pub guest_tables: TableFormat,
    /// The guest's usual page size.
    pub guest_page: PageSize,
    /// The page sizes with which the host maps the guest's memory.
    pub host_pages: HostPages,
    /// Does the guest isolate its kernel's page tables?
    pub isolation: bool,
    /// The guest's memory in bytes; at most [`MAX_MEMORY_BYTES`].
    pub memory_bytes: u64,
    /// How the VMM keeps shadow tables.
    pub shadow: ShadowStyle,
    /// `false`: no walk caches, nested TLB or data caches, so that walks have their full length.
    pub caches: bool,
    /// `false`: TLB misses are counted and nothing is walked.
    pub walks: bool,
    /// The seed for random replacement.
    pub seed: u64,
}

/// A core, whose counters only grow.
pub struct Core {
    machine: Machine,
    translating: Translating,
    guest: Radix,
    guest_spans: [u32; 3],
    /// The size of a TLB entry for each page size of the guest, in the current mode and where the
    /// host has pages of one size.
    entry_sizes: [PageSize; 3],
    /// Does the size of a TLB entry depend on where in memory the page is?
    mixed: bool,
    walks: bool,
    tlb: Tlb,
    spaces: Spaces,
    /// Has a page of the guest been held in smaller pieces since the TLBs were last emptied?
    pieces: bool,
    page_walk: WalkCaches,
    data: DataCaches,
    host: Host,
    shadow_setup: ShadowSetup,
    /// Present only under shadow and agile paging.
    shadow: Option<Shadow>,
    /// The guest's clock at the last event: entries up to this time are lost at a switch to shadow
    /// paging.
    clock: u64,
    /// Room for the references of a block that missed the TLB.
    missed: block::Missed,
    tally: Tally,
    /// Everything that is not in `tally` and that `data` does not count.
    charged: Counters,
    /// Work of dropped shadow tables.
    past_work: u64,
    /// Present only where native walks are counted by entry.
    entries: Option<Box<EntryCounts>>,
}

/// The counts of the hot path.
#[derive(Default)]
struct Tally {
    second_tlb_hits: u64,
    tlb_misses: u64,
    /// Hits in page-walk caches, nested TLB and nested walk caches.
    walk_cache_hits: u64,
}

impl Core {
    /// A core with empty TLBs and caches, under a host that has mapped nothing yet.
    ///
    /// Fails, naming the field, when the machine cannot exist, when its tables lack a wanted page
    /// size or cannot hold guests, or when the memory is more than the model or a cache can
    /// address.
    pub fn new(setup: &CoreSetup, translating: Translating) -> Result<Self, ModelError> {
        check(setup, translating)?;
        let machine = setup.machine.clone();
        let bare = WalkDescription::default();
        let (walk, caches) = if setup.caches {
            (&machine.walk, &machine.caches[..])
        } else {
            (&bare, &[][..])
        };
        let end = host_address(Gpa(setup.memory_bytes));
        let shadow_setup = shadow_setup(setup);
        let mut core = Self {
            translating,
            guest: Radix::new(setup.guest_tables),
            guest_spans: PageSize::ALL.map(|size| setup.guest_tables.span(size.level())),
            entry_sizes: PageSize::ALL,
            mixed: false,
            walks: setup.walks,
            tlb: Tlb::new(&machine.tlb, setup.seed),
            spaces: Spaces::default(),
            pieces: false,
            page_walk: WalkCaches::new(&walk.page_walk, setup.guest_tables),
            data: DataCaches::new(caches, Hpa(end.0))?,
            host: Host::new(
                walk,
                machine.host_tables,
                setup.host_pages.clone(),
                setup.memory_bytes,
            ),
            shadow_setup,
            shadow: None,
            clock: 0,
            missed: Vec::new(),
            tally: Tally::default(),
            charged: Counters::default(),
            past_work: 0,
            entries: None,
            machine,
        };
        core.begin(translating);
        Ok(core)
    }

    /// Starts in a mode, with empty shadow tables where the mode has any.
    fn begin(&mut self, translating: Translating) {
        self.translating = translating;
        self.past_work = self.work();
        let shadowing = matches!(translating, Translating::Shadow | Translating::Agile);
        self.shadow = shadowing.then(|| Shadow::new(self.shadow_setup.clone(), translating));
        let format = if shadowing {
            walked_format(&self.shadow_setup)
        } else {
            self.shadow_setup.guest_tables
        };
        self.page_walk.set_format(format);
        let fixed = match (translating, self.shadow_setup.style) {
            (Translating::Native, _) => Some(PageSize::ALL),
            (_, ShadowStyle::Palacios) if shadowing => Some([PageSize::K4; 3]),
            _ => None,
        };
        let host = &self.host.pages;
        self.mixed = fixed.is_none() && !host.is_uniform();
        let usual = PageSize::ALL.map(|guest| guest.min(host.usual()));
        self.entry_sizes = fixed.unwrap_or(usual);
    }

    /// The guest references `address`, which its tables translate as `found`.
    #[inline]
    pub fn access(&mut self, address: Gva, found: &Translation, write: bool, tables: &GuestTables) {
        self.reach(address, found, write, tables);
        self.data.serve();
    }

    /// [`Self::access`] without the data caches, which are served later.
    #[inline]
    fn reach(&mut self, address: Gva, found: &Translation, write: bool, tables: &GuestTables) {
        let size = self.entry_size(address, found);
        let space = self.spaces.current();
        match self.tlb.look_up(address, size, space, write) {
            Found::First => return,
            Found::Second => {
                self.tally.second_tlb_hits += 1;
                return;
            }
            Found::Missed => self.tally.tlb_misses += 1,
        }
        let mut writable = found.writable && found.dirty;
        if self.walks {
            match self.translating {
                Translating::Native => {
                    self.walk_native(address, &found.tables, found.depth);
                }
                Translating::Nested => {
                    let data = self.data_address(address, found);
                    self.walk_nested(address, &found.tables, found.depth, data);
                }
                Translating::Shadow | Translating::Agile => {
                    writable = self.walk_shadow(address, found, write, tables);
                }
            }
        }
        self.pieces |= size.shift() < self.guest_spans[found.size as usize];
        self.tlb.insert(address, size, space, writable);
    }

    /// The guest executes in the page of `address`, which its tables translate as `found`: the VMM
    /// maps the page where it has not yet. No instruction TLB is modelled.
    pub fn fetch(&mut self, address: Gva, found: &Translation, tables: &GuestTables) {
        if !self.walks {
            return;
        }
        match self.translating {
            Translating::Native => {}
            Translating::Nested => {
                if self.host.map(self.data_address(address, found)) {
                    self.exit(Exit::NestedFault, self.machine.costs.nested_fault);
                }
            }
            Translating::Shadow | Translating::Agile => self.fetch_shadow(address, found, tables),
        }
    }

    /// The guest's tables do not translate `address`: the hardware walked them and faulted.
    pub fn guest_fault(&mut self, address: Gva, walk: &PartialWalk) {
        self.tally.tlb_misses += 1;
        if !self.walks {
            return;
        }
        match self.translating {
            Translating::Native => self.walk_native(address, &walk.tables, walk.depth),
            Translating::Nested => {
                self.walk_nested_tables(address, &walk.tables, walk.depth);
            }
            Translating::Shadow | Translating::Agile => self.fault_shadow(walk),
        }
        self.data.serve();
    }

    /// Follows what the guest did.
    pub fn guest_event(&mut self, event: &GuestEvent, tables: &GuestTables) {
        self.clock = tables.clock();
        if self.shadow.is_some() {
            self.event_shadow(event, tables);
        }
        self.follow(event);
    }

    /// Charges what the event costs in hardware and in the guest's kernel. This is the same in
    /// every mode; an exit comes on top.
    fn follow(&mut self, event: &GuestEvent) {
        let costs = &self.machine.costs;
        match *event {
            GuestEvent::TableWrite { .. } => {}
            GuestEvent::TableFreed { table } => self.spaces.forget(table),
            GuestEvent::Invlpg { address } => {
                self.charged.cycles.guest += f64::from(costs.guest_invlpg);
                self.invalidate_page(address);
            }
            GuestEvent::LoadCr3 { root, preserve } => {
                self.charged.cycles.guest += f64::from(costs.guest_load_cr3);
                let kept = preserve && self.machine.tlb.pcid && !self.spaces.enter(root);
                if !kept {
                    self.spaces.restart(root);
                    self.clear_guest_dimension();
                }
            }
            GuestEvent::Kernel { cycles } => self.charged.cycles.guest += f64::from(cycles),
            GuestEvent::OtherExit if self.translating == Translating::Native => {}
            GuestEvent::OtherExit => self.exit(Exit::Other, costs.other),
        }
    }

    /// Retires `instructions`, with `references` among them; `base_cpi` is the cycles of each
    /// without any translation cost.
    pub fn retire(&mut self, instructions: u64, references: u64, base_cpi: f32) {
        self.charged.instructions += instructions as f64;
        self.charged.references += references as f64;
        self.charged.cycles.base += instructions as f64 * f64::from(base_cpi);
    }

    /// Charges N times more what was charged once, for events that repeat and change only counters.
    pub fn charge_again(&mut self, once: &Counters, times: f64) {
        self.charged = self.charged + once.scaled(times);
    }

    pub fn shadow_pages(&self) -> usize {
        self.shadow
            .as_ref()
            .map_or(0, |shadow| shadow.tables.pages())
    }

    /// Visits of pages and entries where one change leads to many.
    pub fn work(&self) -> u64 {
        let shadow = self.shadow.as_ref();
        self.past_work + shadow.map_or(0, |shadow| shadow.tables.work())
    }

    /// The policy's instruction counter overflowed and the VMM ran the policy.
    pub fn policy_exit(&mut self) {
        self.exit(Exit::Policy, self.machine.costs.policy);
    }

    /// Continues in the other mode, if the core is in one of the two modes that can change.
    pub fn switch(&mut self, to: PagingMode) {
        if self.paging().is_none_or(|from| from == to) {
            return;
        }
        let cycles = match to {
            PagingMode::Nested => self.machine.costs.switch_to_nested,
            PagingMode::Shadow => self.machine.costs.switch_to_shadow,
        };
        self.charged.switches += 1.0;
        self.charged.cycles.switches += f64::from(cycles);
        self.begin(to.into());
        if let Some(shadow) = &mut self.shadow {
            shadow.tables.clear(self.clock);
        }
        self.clear_all();
    }

    /// The mode, if it is one that a policy can choose.
    pub fn paging(&self) -> Option<PagingMode> {
        match self.translating {
            Translating::Shadow => Some(PagingMode::Shadow),
            Translating::Nested => Some(PagingMode::Nested),
            Translating::Native | Translating::Agile => None,
        }
    }

    /// Counts native walks by page-table entry from here on.
    pub fn count_entries(&mut self) {
        self.entries = Some(Box::default());
    }

    /// The walks by entry, where they were counted.
    pub fn into_entries(self) -> Option<EntryCounts> {
        self.entries.map(|counts| *counts)
    }

    /// Everything counted since the core was made.
    pub fn counters(&self) -> Counters {
        let machine = &self.machine;
        let served = self.data.served().map(|count| count as f64);
        let mut counters = self.charged;
        let tally = &self.tally;
        counters.l1_tlb_misses = (tally.second_tlb_hits + tally.tlb_misses) as f64;
        counters.l2_tlb_misses = tally.tlb_misses as f64;
        counters.walk_references = served;
        counters.cycles.tlb = tally.second_tlb_hits as f64 * f64::from(machine.tlb.l2_latency);
        let hits = tally.walk_cache_hits as f64 * f64::from(machine.walk.latency);
        let levels = machine.caches.iter().map(|level| level.latency).zip(served);
        let cached: f64 = levels
            .map(|(latency, count)| f64::from(latency) * count)
            .sum();
        let memory = served[served.len() - 1] * f64::from(machine.memory_latency);
        counters.cycles.walks = hits + cached + memory;
        counters
    }

    /// The guest physical address of `address`, of which only the page matters.
    #[inline]
    fn data_address(&self, address: Gva, found: &Translation) -> Gpa {
        self.data_in(address, found.frame, found.size)
    }

    /// [`Self::data_address`] in the page of this size that begins at `frame`.
    #[inline]
    fn data_in(&self, address: Gva, frame: Gfn, size: PageSize) -> Gpa {
        let offset = address.0 & ((1 << self.guest_spans[size as usize]) - 1);
        let offset = offset >> PAGE_SHIFT << PAGE_SHIFT;
        Gpa(frame.address().0.wrapping_add(offset))
    }

    /// The size of the TLB entry for `address`.
    #[inline]
    fn entry_size(&self, address: Gva, found: &Translation) -> PageSize {
        self.size_of_entry(address, found.frame, found.size)
    }

    /// [`Self::entry_size`] in the page of this size that begins at `frame`.
    #[inline]
    fn size_of_entry(&self, address: Gva, frame: Gfn, size: PageSize) -> PageSize {
        if self.mixed {
            let host = self.host.pages.at(self.data_in(address, frame, size));
            return size.min(host);
        }
        self.entry_sizes[size as usize]
    }

    /// Leaves the guest once; without tags this empties the TLBs.
    fn exit(&mut self, cause: Exit, work: u32) {
        CostAccount::new(&mut self.charged, &self.machine.costs).exit(cause, work);
        self.empty_untagged();
    }

    /// Follows an exit that somebody else counts: without tags it empties the TLBs.
    pub fn empty_untagged(&mut self) {
        if !self.machine.tlb.tagged {
            self.clear_all();
        }
    }

    fn clear_all(&mut self) {
        self.clear_guest_dimension();
        self.host.clear_caches();
    }

    /// Empties everything that is looked up by guest virtual address.
    fn clear_guest_dimension(&mut self) {
        self.tlb.clear();
        self.page_walk.clear();
        self.pieces = false;
    }

    /// INVLPG: the page's entries go, and all page-walk caches (Intel SDM volume 3, "Operations
    /// that invalidate TLBs and paging-structure caches"; AMD64 manual volume 2, section 5.5).
    ///
    /// One address does not find all pieces of a larger page, so when there are pieces the whole
    /// TLB is emptied: a conservative assumption.
    fn invalidate_page(&mut self, address: Gva) {
        if self.pieces {
            self.clear_guest_dimension();
        } else {
            self.tlb.remove(address, self.spaces.current());
            self.page_walk.clear();
        }
    }
}

fn check(setup: &CoreSetup, translating: Translating) -> Result<(), ModelError> {
    setup.machine.check()?;
    setup.guest_tables.check(setup.guest_page)?;
    let host = setup.machine.host_tables;
    setup
        .host_pages
        .sizes()
        .try_for_each(|size| host.check(size))?;
    if host == TableFormat::Two && translating != Translating::Native {
        let reason = "a host that runs guests has four or five levels";
        return Err(ModelError::field("host_tables", reason));
    }
    if setup.memory_bytes > MAX_MEMORY_BYTES {
        let reason = format!("at most {MAX_MEMORY_BYTES} bytes are modelled");
        return Err(ModelError::field("memory", reason));
    }
    Ok(())
}

fn shadow_setup(setup: &CoreSetup) -> ShadowSetup {
    ShadowSetup {
        style: setup.shadow,
        guest_tables: setup.guest_tables,
        host_tables: setup.machine.host_tables,
        guest_page: setup.guest_page,
        host_pages: setup.host_pages.clone(),
        isolation: setup.isolation,
        agile: false,
        page_limit: ShadowSetup::page_limit_of(setup.memory_bytes),
    }
}
