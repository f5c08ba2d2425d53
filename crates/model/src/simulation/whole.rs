//! Following every reference of a workload.

use super::intervals;
use super::lane::Lane;
use super::oracle;
use super::outcome::{Outcome, Progress};
use super::setup::{Choice, Setup};
use crate::error::ModelError;
use crate::limits::{Limits, Meter};
use crate::model::address::{Gva, Reference};
use crate::model::counters::Counters;
use crate::model::guest::{Block, Guest};
use crate::model::guest_event::GuestEvent;
use crate::model::mode::Translating;
use crate::step::{Operation, Step, StepSource};

/// Blocks between two calls of the progress callback.
pub(super) const BLOCKS_PER_REPORT: u32 = 512;

/// The most successive equal events that are followed one by one. After these, the roots, tags and
/// tables of any mode are in a steady state, so that each further event changes only counters.
const SINGLY: u32 = 64;

/// Simulates `source` under every choice in one pass.
///
/// The guest is simulated once; each choice has its own core that follows the guest. Windows and
/// policies are served at the end of a block of references (a few thousand at most), as a counter's
/// overflow is served with some skid. A native core always runs too.
///
/// # Errors
/// [`ModelError`] for an impossible setup, a workload that does not fit or exceeds its limits, a
/// damaged trace, or a policy that fails.
pub fn simulate(
    source: &mut dyn StepSource,
    setup: &Setup,
    choices: Vec<(String, Choice)>,
    progress: Progress<'_>,
) -> Result<Outcome, ModelError> {
    setup.check()?;
    if let Some(length) = source.interval() {
        return intervals::simulate(source, length, setup, choices, progress);
    }
    let mut run = Run::new(setup, choices, source.limits())?;
    let mut blocks = 0_u32;
    let mut stopped = false;
    while let Some(step) = source.next_step()? {
        run.step(step)?;
        blocks += 1;
        if blocks.is_multiple_of(BLOCKS_PER_REPORT) && progress(run.instructions).is_break() {
            stopped = true;
            break;
        }
        if setup
            .instruction_limit
            .is_some_and(|limit| run.instructions >= limit)
        {
            break;
        }
    }
    run.finish(setup, stopped)
}

/// The guest and all cores that follow it.
pub(super) struct Follower {
    pub(super) guest: Guest,
    pub(super) lanes: Vec<Lane>,
    block: Block,
    events: Vec<GuestEvent>,
    limits: Limits,
    meter: Meter,
}

impl Follower {
    pub(super) fn new(setup: &Setup, lanes: Vec<Lane>, limits: Limits) -> Result<Self, ModelError> {
        let guest = Guest::new(setup.guest())?.limited(limits);
        Ok(Self {
            guest,
            lanes,
            block: Block::default(),
            events: Vec::new(),
            limits,
            meter: Meter::new(&limits),
        })
    }

    /// Passes one step to the guest and to every core.
    pub(super) fn step(&mut self, step: Step<'_>) -> Result<(), ModelError> {
        match step {
            Step::References {
                references,
                instructions,
                base_cpi,
            } => {
                self.meter.pay(references.len());
                self.follow(references)?;
                for lane in &mut self.lanes {
                    lane.core
                        .retire(instructions, references.len() as u64, base_cpi);
                }
            }
            Step::Operation(operation) => {
                self.meter.pay(0);
                match operation {
                    Operation::Fault { address } => {
                        let walk = self.guest.faulting_walk(address);
                        for lane in &mut self.lanes {
                            lane.core.guest_fault(address, &walk);
                        }
                    }
                    Operation::Fetch { address } => self.fetch(address),
                    _ => {}
                }
                self.operate(&operation)?;
            }
            Step::Phase(_) | Step::Interval { .. } => {}
        }
        self.check()
    }

    /// Fails when the workload asks for more than it may.
    fn check(&self) -> Result<(), ModelError> {
        let lanes = self.lanes.iter();
        let work = lanes.clone().map(|lane| lane.core.work());
        self.meter
            .check(work.sum::<u64>().saturating_add(self.guest.work()))?;
        let pages = lanes.clone().map(|lane| lane.core.shadow_pages()).sum();
        Limits::check(pages, self.limits.shadow_pages, "shadow pages in all modes")?;
        let rows = lanes.map(Lane::rows).sum();
        let what = "windows and changes of the mode in all modes: choose a longer window";
        Limits::check(rows, self.limits.rows, what)
    }

    fn operate(&mut self, operation: &Operation) -> Result<(), ModelError> {
        match *operation {
            Operation::SystemCalls { count } if count > SINGLY => {
                self.repeat(count, &Operation::SystemCalls { count: 1 })
            }
            Operation::OtherExits { count } if count > SINGLY => {
                self.repeat(count, &Operation::OtherExits { count: 1 })
            }
            _ => {
                self.guest.apply(operation, &mut self.events)?;
                self.tell();
                Ok(())
            }
        }
    }

    /// Applies `once` N times, in a time that does not grow with N.
    fn repeat(&mut self, count: u32, once: &Operation) -> Result<(), ModelError> {
        let mut before = self.counters();
        for _ in 0..SINGLY {
            before = self.counters();
            self.guest.apply(once, &mut self.events)?;
            self.tell();
        }
        for (lane, before) in self.lanes.iter_mut().zip(before) {
            let charged = lane.core.counters() - before;
            lane.core.charge_again(&charged, f64::from(count - SINGLY));
        }
        Ok(())
    }

    pub(super) fn counters(&self) -> Vec<Counters> {
        let lanes = self.lanes.iter();
        lanes.map(|lane| lane.core.counters()).collect()
    }

    /// Forgets the last page, because a TLB may have been emptied.
    pub(super) fn forget(&mut self) {
        self.block.forget();
    }

    fn follow(&mut self, mut references: &[Reference]) -> Result<(), ModelError> {
        while !references.is_empty() {
            let (taken, changes) = self.block.fill(&self.guest, references);
            for lane in &mut self.lanes {
                let tables = self.guest.tables();
                lane.core.follow_block(&self.block, tables);
            }
            references = references.get(taken..).unwrap_or_default();
            if let Some((first, rest)) = references.split_first().filter(|_| changes) {
                self.reference(*first)?;
                references = rest;
            }
        }
        Ok(())
    }

    /// The processor executes in a page. What the trace's tables do not map is left out.
    fn fetch(&mut self, address: Gva) {
        if let Ok(found) = self.guest.translate(address, false) {
            for lane in &mut self.lanes {
                lane.core.fetch(address, &found, self.guest.tables());
            }
        }
    }

    /// References the page at `address`, if the guest's tables map it; returns whether they do.
    pub(super) fn touch(&mut self, address: Gva) -> Result<bool, ModelError> {
        let Ok(found) = self.guest.translate(address, false) else {
            return Ok(false);
        };
        let write = found.writable && found.dirty;
        self.reference(Reference::new(address, write))?;
        Ok(true)
    }

    /// A reference at which the guest faults, sets a dirty bit, or leaves for a device.
    fn reference(&mut self, reference: Reference) -> Result<(), ModelError> {
        let (address, write) = (reference.address(), reference.write());
        let found = match self.guest.translate(address, write) {
            Ok(found) => found,
            Err(walk) => {
                for lane in &mut self.lanes {
                    lane.core.guest_fault(address, &walk);
                }
                self.guest.handle_fault(address, write, &mut self.events)?;
                self.tell();
                self.guest
                    .translate(address, write)
                    .map_err(|_| ModelError::Operation {
                        operation: "reference",
                        reason: format!("the fault at {:#x} could not be handled", address.0),
                    })?
            }
        };
        if self.guest.is_device(address, &found) {
            self.events.push(GuestEvent::OtherExit);
            self.tell();
            return Ok(());
        }
        for lane in &mut self.lanes {
            lane.core
                .access(address, &found, write, self.guest.tables());
        }
        self.block.followed(reference);
        Ok(())
    }

    fn tell(&mut self) {
        for lane in &mut self.lanes {
            for event in &self.events {
                lane.core.guest_event(event, self.guest.tables());
            }
        }
        self.events.clear();
        self.block.forget();
    }
}

/// One mode of the output: a lane, or the oracle computed from lanes.
enum Output {
    Lane(usize),
    Oracle(String),
}

struct Run {
    follower: Follower,
    outputs: Vec<Output>,
    native: usize,
    /// Lanes of static shadow and nested paging, for the oracle.
    both: Option<[usize; 2]>,
    instructions: f64,
    next_window: f64,
    window: f64,
    phase: u32,
}

impl Run {
    fn new(
        setup: &Setup,
        choices: Vec<(String, Choice)>,
        limits: Limits,
    ) -> Result<Self, ModelError> {
        let core = setup.core(setup.guest_page);
        let mut lanes = Vec::new();
        let mut outputs = Vec::new();
        let mut fixed = std::collections::HashMap::new();
        for (name, choice) in choices {
            let lane = match choice {
                Choice::Fixed(translating) => {
                    fixed.insert(translating, lanes.len());
                    Lane::fixed(name, &core, translating)?
                }
                Choice::Policy(policy) => Lane::steered(name, &core, policy)?,
                Choice::Oracle => {
                    outputs.push(Output::Oracle(name));
                    continue;
                }
            };
            outputs.push(Output::Lane(lanes.len()));
            lanes.push(lane);
        }
        let mut lane_of = |translating, name: &str| {
            if let Some(&at) = fixed.get(&translating) {
                return Ok::<_, ModelError>(at);
            }
            lanes.push(Lane::fixed(name.to_owned(), &core, translating)?);
            Ok(lanes.len() - 1)
        };
        let native = lane_of(Translating::Native, "native")?;
        let oracle = outputs
            .iter()
            .any(|output| matches!(output, Output::Oracle(_)));
        let both = if oracle {
            let shadow = lane_of(Translating::Shadow, "shadow")?;
            Some([shadow, lane_of(Translating::Nested, "nested")?])
        } else {
            None
        };
        let window = setup.window_instructions as f64;
        Ok(Self {
            follower: Follower::new(setup, lanes, limits)?,
            outputs,
            native,
            both,
            instructions: 0.0,
            next_window: window,
            window,
            phase: 0,
        })
    }

    fn step(&mut self, step: Step<'_>) -> Result<(), ModelError> {
        if let Step::Phase(phase) = step {
            self.phase = phase;
        }
        let retired = match step {
            Step::References { instructions, .. } => instructions,
            Step::Operation(_) | Step::Phase(_) | Step::Interval { .. } => 0,
        };
        self.follower.step(step)?;
        self.instructions += retired as f64;
        let mut emptied = false;
        for lane in &mut self.follower.lanes {
            emptied |= lane.steer()?;
        }
        if emptied {
            self.follower.forget();
        }
        if self.instructions >= self.next_window {
            self.cut();
            let passed = ((self.instructions - self.next_window) / self.window).floor() + 1.0;
            self.next_window += passed * self.window;
        }
        Ok(())
    }

    fn cut(&mut self) {
        for lane in &mut self.follower.lanes {
            lane.cut(self.phase);
        }
    }

    fn finish(mut self, setup: &Setup, stopped: bool) -> Result<Outcome, ModelError> {
        self.cut();
        let resident = self.follower.guest.resident_pages();
        let mut outcomes: Vec<_> = self.follower.lanes.into_iter().map(Lane::finish).collect();
        let refill = oracle::refill_bound(setup, resident);
        let plan = |[shadow, nested]: [usize; 2]| {
            oracle::from_windows(setup, &outcomes[shadow], &outcomes[nested], |_| refill)
        };
        let oracle = self.both.map(plan).transpose()?;
        let native = outcomes[self.native].totals;
        let mut modes = Vec::with_capacity(self.outputs.len());
        for output in self.outputs {
            match (output, &oracle) {
                (Output::Lane(at), _) => modes.push(std::mem::take(&mut outcomes[at])),
                (Output::Oracle(name), Some(found)) => {
                    modes.push(super::outcome::ModeOutcome {
                        name,
                        ..found.clone()
                    });
                }
                (Output::Oracle(_), None) => {}
            }
        }
        Ok(Outcome {
            modes,
            native,
            whole: true,
            stopped,
        })
    }
}
