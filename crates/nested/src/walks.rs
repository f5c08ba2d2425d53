//! The TLB misses and walks of the guest's data references, by the model.
//!
//! Page tables lie one after the other, in the order of the addresses that they map, and so do the
//! pages: entries of neighbouring pages share a cache line, as in real tables.

use vtax_model::error::ModelError;
use vtax_model::model::address::{Gfn, Gva, PAGE_SHIFT, PageSize, TableFormat};
use vtax_model::model::core::{Core, CoreSetup};
use vtax_model::model::guest::{Guest, GuestSetup};
use vtax_model::model::guest_event::{GuestEvent, Translation};
use vtax_model::model::host_pages::HostPages;
use vtax_model::model::machine::Machine;
use vtax_model::model::mode::Translating;
use vtax_model::model::shadow::ShadowStyle;
use vtax_sys::kvm::PagingMode;

/// Frames of data and of tables of each level, lowest first: addresses that are this far apart
/// share them.
const DATA_FRAMES: u64 = 1 << 18;
const TABLE_FRAMES: [u64; 3] = [1 << 16, 1 << 12, 1 << 8];
/// Base-2 logarithm of the bytes that a table of each level maps, lowest first.
const SPANS: [u32; 3] = [21, 30, 39];

/// What was counted for one paging mode or for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub tlb_misses: u64,
    pub walk_references: u64,
    pub walk_cycles: u64,
    /// Cycles of hits in the second TLB.
    pub tlb_cycles: u64,
}

/// A core for each paging mode, with one of them in use.
///
/// Under shadow paging the hardware walks one dimension, as natively: that core's mode is native.
pub struct Walks {
    nested: Core,
    shadow: Core,
    mode: PagingMode,
    guest: Guest,
}

impl Walks {
    /// Empty TLBs and caches. Fails as the machine's description does.
    pub fn new(machine: &Machine) -> Result<Self, ModelError> {
        let frames = DATA_FRAMES + TABLE_FRAMES.iter().sum::<u64>() + 1;
        let memory_bytes = frames << PAGE_SHIFT;
        let setup = CoreSetup {
            machine: machine.clone(),
            guest_tables: TableFormat::Four,
            guest_page: PageSize::K4,
            host_pages: HostPages::of(PageSize::K4),
            isolation: false,
            memory_bytes,
            shadow: ShadowStyle::KVM,
            caches: true,
            walks: true,
            seed: 1,
        };
        let guest = GuestSetup::new(TableFormat::Four, memory_bytes, &machine.costs);
        Ok(Self {
            nested: Core::new(&setup, Translating::Nested)?,
            shadow: Core::new(&setup, Translating::Native)?,
            mode: PagingMode::Nested,
            guest: Guest::new(guest)?,
        })
    }

    /// The guest loads or stores at `address` under this paging mode.
    #[inline]
    pub fn reference(&mut self, mode: PagingMode, address: u64, write: bool) {
        self.mode = mode;
        let core = match mode {
            PagingMode::Nested => &mut self.nested,
            PagingMode::Shadow => &mut self.shadow,
        };
        core.access(
            Gva(address),
            &translation(address),
            write,
            self.guest.tables(),
        );
    }

    /// Empties what an exit empties.
    pub fn exit(&mut self) {
        self.nested.empty_untagged();
        self.shadow.empty_untagged();
    }

    /// Empties what a load of CR3 without PCID, or of CR4, empties.
    pub fn flush(&mut self) {
        let load = GuestEvent::LoadCr3 {
            root: root(),
            preserve: false,
        };
        self.nested.guest_event(&load, self.guest.tables());
        self.shadow.guest_event(&load, self.guest.tables());
    }

    /// What was counted in both modes together.
    pub fn counted(&self) -> Counted {
        let mut sum = Counted::default();
        for counters in [self.nested.counters(), self.shadow.counters()] {
            sum.tlb_misses += whole(counters.l2_tlb_misses);
            sum.walk_references += whole(counters.total_walk_references());
            sum.walk_cycles += whole(counters.cycles.walks);
            sum.tlb_cycles += whole(counters.cycles.tlb);
        }
        sum
    }
}

/// Counts are not negative, and the cast saturates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(count: f64) -> u64 {
    count.round() as u64
}

fn root() -> Gfn {
    Gfn(DATA_FRAMES + TABLE_FRAMES.iter().sum::<u64>())
}

#[inline]
fn translation(address: u64) -> Translation {
    let [low, middle, high] = TABLE_FRAMES;
    let [below_low, below_middle, below_high] = SPANS;
    Translation {
        page: Gva(address >> PAGE_SHIFT << PAGE_SHIFT),
        frame: Gfn(address >> PAGE_SHIFT & (DATA_FRAMES - 1)),
        size: PageSize::K4,
        writable: true,
        dirty: true,
        tables: [
            root(),
            Gfn(DATA_FRAMES + low + middle + (address >> below_high & (high - 1))),
            Gfn(DATA_FRAMES + low + (address >> below_middle & (middle - 1))),
            Gfn(DATA_FRAMES + (address >> below_low & (low - 1))),
            Gfn(0),
        ],
        depth: 4,
        written_at: 0,
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::presets;

    use super::*;

    const PAGE: u64 = 4096;

    fn walks() -> Walks {
        Walks::new(&presets::by_name("zen4").unwrap()).unwrap()
    }

    fn sweep(walks: &mut Walks, mode: PagingMode, pages: u64) -> Counted {
        let before = walks.counted();
        for page in 0..pages {
            walks.reference(mode, 0x5555_0000_0000 + page * PAGE, false);
        }
        let after = walks.counted();
        Counted {
            tlb_misses: after.tlb_misses - before.tlb_misses,
            walk_references: after.walk_references - before.walk_references,
            walk_cycles: after.walk_cycles - before.walk_cycles,
            tlb_cycles: after.tlb_cycles - before.tlb_cycles,
        }
    }

    #[test]
    fn what_fits_misses_once_and_again_after_a_flush() {
        for mode in [PagingMode::Nested, PagingMode::Shadow] {
            let mut walks = walks();
            assert_eq!(sweep(&mut walks, mode, 2000).tlb_misses, 2000);
            assert_eq!(sweep(&mut walks, mode, 2000).tlb_misses, 0);
            walks.exit();
            assert_eq!(
                sweep(&mut walks, mode, 2000).tlb_misses,
                0,
                "Zen 4 has ASIDs"
            );
            walks.flush();
            assert_eq!(sweep(&mut walks, mode, 2000).tlb_misses, 2000);
        }
    }

    #[test]
    fn a_nested_walk_reads_more() {
        let (nested, shadow) = (
            sweep(&mut walks(), PagingMode::Nested, 20_000),
            sweep(&mut walks(), PagingMode::Shadow, 20_000),
        );
        assert_eq!(nested.tlb_misses, shadow.tlb_misses);
        // Neighbouring pages: the walk caches leave one table of each dimension to read.
        assert!(
            10 * shadow.walk_references < 11 * shadow.tlb_misses,
            "{shadow:?}"
        );
        assert!(
            10 * nested.walk_references > 19 * nested.tlb_misses,
            "{nested:?}"
        );
        assert!(2 * nested.walk_cycles > 3 * shadow.walk_cycles);
    }

    #[test]
    fn an_exit_empties_a_tlb_without_tags() {
        let mut walks = Walks::new(&presets::by_name("opteron2350").unwrap()).unwrap();
        for mode in [PagingMode::Nested, PagingMode::Shadow] {
            // At a first touch the modelled host maps the page, which is an exit too.
            sweep(&mut walks, mode, 40);
            sweep(&mut walks, mode, 40);
            assert_eq!(sweep(&mut walks, mode, 40).tlb_misses, 0);
            walks.exit();
            assert_eq!(sweep(&mut walks, mode, 40).tlb_misses, 40);
        }
    }
}
