//! The stages that are measured one after the other, and what each leaves for the next.

use vtax_sys::calls::memory::page_bytes;
use vtax_sys::tree::Tree;

use crate::facts;
use crate::probe::arena::{Arena, HUGE_BYTES, Pages};
use crate::probe::claims::Claims;
use crate::probe::curve::Curve;
use crate::probe::edges::Rule;
use crate::probe::meter::{Budget, Meter, float};
use crate::probe::quantity::{Name, Quantity};
use crate::probe::{Drawn, DrawnEdge, Probe, associativity, bandwidth, caches, floating, tlb};
use vtax_tuner::statistics::Interval;

const MIB: u64 = 1 << 20;
/// The largest working set as a multiple of the largest claimed cache.
const TIMES_CACHE: f64 = 4.0;
/// Bounds of the largest working set.
const LEAST_BYTES: u64 = 64 * MIB;
const MOST_BYTES: u64 = 512 * MIB;
/// One part in this many of the available memory is taken: a guest with little memory must not
/// swap.
const SHARE_OF_MEMORY: u64 = 4;
/// Enough memory for the step after an L1 of 256 KiB, when nothing else is asked for.
const FOR_L1: u64 = MIB;
/// Enough memory for the step after an L2 of 2 MiB, with enough points for a plateau beyond it.
const FOR_L2: u64 = 32 * MIB;
/// Thirty-two lines of one set of a cache of 1 MiB.
const FOR_ASSOCIATIVITY: u64 = 32 * MIB;
/// Memory for the TLBs with small pages: 8192 pages.
const FOR_TLB: u64 = 32 * MIB;
/// Memory for the TLBs with huge pages: 128 pages. The second level reaches gigabytes on recent
/// processors.
const FOR_TLB_HUGE: u64 = 256 * MIB;
/// From this share of huge pages on, memory counts as huge pages.
const NEARLY_ALL: f64 = 0.95;
/// The page size of the small TLB entries.
const SMALL_BYTES: u32 = 4096;

const CLOCK: Name = Name::new("core_clock", "GHz");

/// Quantities that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Clock,
    Floating,
    Caches,
    Associativity,
    Tlb,
    TlbHuge,
    Bandwidth,
}

impl Stage {
    /// The stages that these probes need, in order; without probes, all stages.
    pub fn needed(probes: &[Probe]) -> Vec<Self> {
        let all = [
            Self::Clock,
            Self::Floating,
            Self::Tlb,
            Self::TlbHuge,
            Self::Bandwidth,
            Self::Caches,
            Self::Associativity,
        ];
        let wanted =
            |stage: &Self| probes.is_empty() || probes.iter().any(|one| stage.serves(*one));
        all.into_iter().filter(wanted).collect()
    }

    fn serves(self, probe: Probe) -> bool {
        match probe {
            Probe::Clock => self == Self::Clock,
            Probe::Add
            | Probe::Multiply
            | Probe::Fma
            | Probe::Pipeline
            | Probe::Registers
            | Probe::Peak => self == Self::Floating,
            Probe::L1 | Probe::L2 | Probe::L3 | Probe::Memory => self == Self::Caches,
            // The distance of lines in one set is derived from the size.
            Probe::Associativity => self == Self::Associativity || self == Self::Caches,
            Probe::Tlb => self == Self::Tlb,
            Probe::TlbHuge => self == Self::TlbHuge,
            Probe::Bandwidth => self == Self::Bandwidth,
        }
    }

    /// The stage's share of the time of all remaining stages.
    pub fn weight(self) -> u32 {
        match self {
            Self::Clock => 1,
            Self::Tlb | Self::TlbHuge | Self::Bandwidth => 3,
            Self::Associativity => 2,
            Self::Floating => 4,
            Self::Caches => 12,
        }
    }
}

/// Where the stages work, and what they have found.
pub struct Bench<'a> {
    probes: &'a [Probe],
    meter: Meter,
    claims: &'a Claims<'a>,
    tree: &'a Tree,
    l1_bytes: Option<f64>,
    /// Memory that one stage hands to the next: touching it takes seconds in user-mode Linux.
    memory: Option<Arena>,
    pub quantities: Vec<Quantity>,
    pub curves: Vec<Drawn>,
    pub notes: Vec<String>,
}

impl<'a> Bench<'a> {
    pub fn new(probes: &'a [Probe], meter: Meter, claims: &'a Claims<'a>, tree: &'a Tree) -> Self {
        Self {
            probes,
            meter,
            claims,
            tree,
            l1_bytes: None,
            memory: None,
            quantities: Vec::new(),
            curves: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn wants(&self, probe: Probe) -> bool {
        self.probes.is_empty() || self.probes.contains(&probe)
    }

    pub fn carry_out(&mut self, stage: Stage, budget: &Budget) {
        match stage {
            Stage::Clock => self.clock(budget),
            Stage::Floating => self.floating(budget),
            Stage::Caches => self.caches(budget),
            Stage::Associativity => self.associativity(budget),
            Stage::Tlb => self.tlb(budget),
            Stage::TlbHuge => self.tlb_huge(budget),
            Stage::Bandwidth => self.bandwidth(budget),
        }
    }

    fn clock(&mut self, budget: &Budget) {
        let meter = self.meter;
        let ghz = budget.repeat(|| meter.hz() / meter.cycle_ticks() / 1e9);
        let found = CLOCK.found(Interval::of(ghz), self.claims.frequency());
        self.quantities.push(found);
    }

    fn floating(&mut self, budget: &Budget) {
        type Part = fn(&Meter, &Budget) -> Vec<Quantity>;
        let parts: [(Probe, Part); 6] = [
            (Probe::Add, |meter, budget| {
                floating::operation(&floating::ADD, meter, budget)
            }),
            (Probe::Multiply, |meter, budget| {
                floating::operation(&floating::MULTIPLY, meter, budget)
            }),
            (Probe::Fma, |meter, budget| {
                floating::operation(&floating::FMA, meter, budget)
            }),
            (Probe::Pipeline, floating::pipeline),
            (Probe::Registers, |meter, budget| {
                vec![floating::registers(meter, budget)]
            }),
            (Probe::Peak, floating::peaks),
        ];
        let wanted: Vec<Part> = parts
            .into_iter()
            .filter(|(probe, _)| self.wants(*probe))
            .map(|(_, part)| part)
            .collect();
        let mut parts_left = u32::try_from(wanted.len()).unwrap_or(1);
        for part in wanted {
            let own = Budget::new(budget.runs, budget.left() / parts_left);
            self.quantities.extend(part(&self.meter, &own));
            parts_left -= 1;
        }
    }

    fn caches(&mut self, budget: &Budget) {
        let most = self.largest_set().min(self.spare());
        let made = self.take_memory();
        let (curve, share) = match made {
            Ok(mut arena) => {
                // More memory may be available than when this memory was taken.
                let most = most.min(arena.words().len() as u64 * 8);
                let curve = caches::curve(&mut arena, most, &self.meter, budget);
                let share = arena.huge_share();
                self.memory = Some(arena);
                (curve, share)
            }
            Err(reason) => (none(reason.clone()), Err(reason)),
        };
        self.note_pages(&share);
        for (level, probe) in [(1, Probe::L1), (2, Probe::L2), (3, Probe::L3)] {
            let found = caches::level(&curve, level, &self.meter, self.claims);
            if level == 1 {
                self.l1_bytes = found.first().and_then(|size| size.value);
            }
            if self.wants(probe) {
                self.quantities.extend(found);
            }
        }
        if self.wants(Probe::Memory) {
            self.quantities
                .push(caches::memory(&curve, &self.meter, self.claims));
        }
        self.draw("latency", &curve, (1, caches::RULE), share.ok());
    }

    /// The memory that the last stage left, or new memory for everything that is asked for.
    fn take_memory(&mut self) -> Result<Arena, String> {
        let all = [
            self.largest_set(),
            if self.wants(Probe::Associativity) {
                FOR_ASSOCIATIVITY
            } else {
                0
            },
            if self.wants(Probe::Bandwidth) {
                self.beyond_caches()
            } else {
                0
            },
        ];
        let most = all.into_iter().max().unwrap_or(0);
        let enough = most.min(self.spare());
        match self.memory.take() {
            Some(memory) => Ok(memory),
            None => Arena::new(bytes(enough), Pages::Huge),
        }
    }

    /// The largest working set that the probes need.
    fn largest_set(&self) -> u64 {
        if self.wants(Probe::L3) || self.wants(Probe::Memory) {
            self.beyond_caches()
        } else if self.wants(Probe::L2) {
            FOR_L2
        } else {
            FOR_L1
        }
    }

    /// A working set larger than the caches, as far as memory allows.
    fn beyond_caches(&self) -> u64 {
        let largest = self.claims.largest_cache();
        let (least, most) = (float(LEAST_BYTES), float(MOST_BYTES));
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between the two"
        )]
        let wanted = (largest * TIMES_CACHE).clamp(least, most) as u64;
        wanted.min(self.spare())
    }

    fn spare(&self) -> u64 {
        let available = facts::memory(self.tree).available_bytes;
        let spare = available.map_or(LEAST_BYTES, |available| available / SHARE_OF_MEMORY);
        spare.max(MIB)
    }

    fn note_pages(&mut self, share: &Result<f64, String>) {
        let note = match share {
            Ok(share) if *share >= NEARLY_ALL => return,
            Ok(share) => format!(
                "{:.0} % of the caches' working sets was in pages of 2 MiB: steps of the TLB may be \
                 among those of the caches",
                100.0 * share
            ),
            Err(reason) => format!("pages of the caches' working sets are not known: {reason}"),
        };
        self.notes.push(note);
    }

    fn associativity(&mut self, budget: &Budget) {
        let found = match self.take_memory() {
            Ok(mut arena) => {
                associativity::ways(&mut arena, self.l1_bytes, &self.meter, budget, self.claims)
            }
            Err(reason) => associativity::absent(reason, self.claims),
        };
        self.quantities.push(found);
    }

    fn tlb(&mut self, budget: &Budget) {
        let (page, most) = (page_bytes(), FOR_TLB.min(self.spare()));
        let share = if page == u64::from(SMALL_BYTES) {
            self.tlb_curve(most, Pages::Small, budget)
        } else {
            Err(format!("this kernel's pages have {page} bytes"))
        };
        self.tlb_quantities(&tlb::SMALL, "tlb_4k", share, SMALL_BYTES);
    }

    fn tlb_huge(&mut self, budget: &Budget) {
        let most = FOR_TLB_HUGE.min(self.spare());
        let found = self.tlb_curve(most, Pages::Huge, budget);
        let huge = u32::try_from(HUGE_BYTES).unwrap_or(0);
        self.tlb_quantities(&tlb::HUGE, "tlb_2m", found, huge);
    }

    fn tlb_curve(
        &self,
        most: u64,
        pages: Pages,
        budget: &Budget,
    ) -> Result<(Curve, Option<f64>), String> {
        let mut arena = Arena::new(bytes(most), pages)?;
        let share = arena.huge_share();
        if pages == Pages::Huge {
            enough(&share)?;
        }
        let size = if pages == Pages::Huge {
            HUGE_BYTES as u64
        } else {
            u64::from(SMALL_BYTES)
        };
        Ok((
            tlb::curve(&mut arena, size, &self.meter, budget),
            share.ok(),
        ))
    }

    fn tlb_quantities(
        &mut self,
        names: &tlb::Names,
        name: &'static str,
        found: Result<(Curve, Option<f64>), String>,
        page: u32,
    ) {
        let (curve, share) = found.unwrap_or_else(|reason| (none(reason), None));
        let quantities = tlb::quantities(names, &curve, page, self.claims);
        self.quantities.extend(quantities);
        self.draw(name, &curve, (u64::from(page), tlb::RULE), share);
    }

    fn bandwidth(&mut self, budget: &Budget) {
        match self.take_memory() {
            Ok(mut arena) => {
                let found = bandwidth::bandwidth(&mut arena, &self.meter, budget);
                self.memory = Some(arena);
                self.quantities.extend(found);
            }
            Err(reason) => self.quantities.extend(bandwidth::absent(&reason)),
        }
    }

    /// Keep a curve whose sizes are in units of `unit` bytes, with its steps.
    fn draw(
        &mut self,
        name: &'static str,
        curve: &Curve,
        (unit, rule): (u64, Rule),
        huge_pages: Option<f64>,
    ) {
        let scaled = |found: Interval| found.scaled(|size| size * float(unit));
        let edges = curve.edges(rule).into_iter().filter_map(|edge| {
            let found = scaled(curve.size_before(&edge).ok()?);
            Some(DrawnEdge {
                bytes: found.value,
                low: found.low,
                high: found.high,
            })
        });
        self.curves.push(Drawn {
            name,
            huge_pages,
            points: curve.points(&self.meter, unit),
            edges: edges.collect(),
            ended: curve.ended.clone(),
        });
    }
}

/// Is nearly all memory in huge pages?
fn enough(share: &Result<f64, String>) -> Result<(), String> {
    match share {
        Ok(share) if *share >= NEARLY_ALL => Ok(()),
        Ok(share) => Err(format!(
            "only {:.0} % of the memory came in pages of 2 MiB",
            100.0 * share
        )),
        Err(reason) => Err(format!("cannot tell whether pages of 2 MiB came: {reason}")),
    }
}

/// A curve that could not be started.
fn none(reason: String) -> Curve {
    Curve {
        ended: Some(reason),
        ..Curve::default()
    }
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_probe_has_a_stage_and_nothing_else_is_measured() {
        for probe in Probe::value_variants() {
            assert!(!Stage::needed(&[*probe]).is_empty(), "{probe:?}");
        }
        assert_eq!(
            Stage::needed(&[Probe::Peak, Probe::Clock]),
            [Stage::Clock, Stage::Floating]
        );
        assert_eq!(
            Stage::needed(&[Probe::Associativity]),
            [Stage::Caches, Stage::Associativity]
        );
        assert_eq!(Stage::needed(&[]).len(), 7);
    }
}
