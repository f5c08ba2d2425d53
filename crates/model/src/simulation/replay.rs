//! A run computed from measured phases, under a fixed mode or a policy.

use super::lane::reading;
use super::outcome::{ModeOutcome, SwitchRow};
use super::phases::Measured;
use super::recorder::Recorder;
use super::setup::Setup;
use super::timeline::Segment;
use crate::error::ModelError;
use crate::model::counters::{Counters, Exit};
use crate::model::mode::Translating;
use crate::policy::Policy;
use vtax_sys::kvm::PagingMode;

/// The input of a replay.
pub(super) struct Course<'a> {
    pub(super) setup: &'a Setup,
    pub(super) segments: &'a [Segment],
    /// The measurements, by phase.
    pub(super) measured: &'a [Option<Measured>],
    /// The measured modes, in the order of the measurements.
    pub(super) modes: &'a [Translating],
}

impl Course<'_> {
    fn index(&self, mode: Translating) -> Result<usize, ModelError> {
        let index = self.modes.iter().position(|other| *other == mode);
        index.ok_or_else(|| ModelError::field("mode", "was not measured"))
    }

    fn phase(&self, segment: &Segment) -> Result<&Measured, ModelError> {
        let measured = self.measured.get(segment.phase).and_then(Option::as_ref);
        measured.ok_or_else(|| ModelError::field("phase", "was not measured"))
    }

    /// Cycles to fill the shadow tables again, by window.
    pub(super) fn refills(&self) -> Vec<f64> {
        let mut refills = Vec::new();
        for segment in self.segments {
            let cycles = self
                .phase(segment)
                .map_or(0.0, |phase| phase.refill.cycles.refill);
            refills.resize(segment.window as usize + 1, cycles);
        }
        refills
    }
}

/// The run in one mode for the whole time.
pub(super) fn fixed(
    course: &Course<'_>,
    name: String,
    mode: Translating,
) -> Result<ModeOutcome, ModelError> {
    let index = course.index(mode)?;
    let mut run = Run::new(course);
    for segment in course.segments {
        run.begin(segment);
        run.enter(segment, index)?;
        run.advance(segment, index, run.steady(segment)?)?;
        run.paging = match mode {
            Translating::Shadow => Some(PagingMode::Shadow),
            Translating::Nested => Some(PagingMode::Nested),
            Translating::Native | Translating::Agile => None,
        };
    }
    Ok(run.finish(name, None))
}

/// The run under a policy.
pub(super) fn steered(
    course: &Course<'_>,
    name: String,
    mut policy: Box<dyn Policy>,
) -> Result<ModeOutcome, ModelError> {
    let indices = [
        course.index(Translating::Shadow)?,
        course.index(Translating::Nested)?,
    ];
    let mut run = Run::new(course);
    let mut next_overflow = policy.window_instructions() as f64;
    let mut unreported = 0.0;
    let mut mode = policy.wanted();
    run.recorder.state(0.0, policy.as_ref());
    for segment in course.segments {
        run.paging = Some(mode);
        run.view = Some(policy.view());
        run.begin(segment);
        let before = run.now.shadow_paging_exits();
        run.enter(segment, indices[mode as usize])?;
        unreported += run.now.shadow_paging_exits() - before;
        let mut left = run.steady(segment)?;
        loop {
            run.report(segment, policy.as_mut(), &mut mode, &mut unreported)?;
            if left <= 0.0 {
                break;
            }
            let index = indices[mode as usize];
            let exits_per_instruction = run.spent(segment, index, 1.0)?.shadow_paging_exits();
            let mut length = left.min((next_overflow - run.now.instructions).max(0.0));
            if mode == PagingMode::Shadow && exits_per_instruction > 0.0 {
                let wanted = policy.exits_until_decision().max(1) as f64 - unreported;
                length = length.min((wanted / exits_per_instruction).max(1.0));
            }
            let before = run.now.shadow_paging_exits();
            run.advance(segment, index, length)?;
            unreported += run.now.shadow_paging_exits() - before;
            left -= length;
            if run.now.instructions >= next_overflow - 0.5 {
                next_overflow += policy.window_instructions() as f64;
                run.report(segment, policy.as_mut(), &mut mode, &mut unreported)?;
                run.overflow();
                let wanted = policy.on_window(&reading(&run.now))?;
                run.recorder.state(run.now.instructions, policy.as_ref());
                run.follow(segment, wanted, &mut mode, &mut unreported)?;
            }
        }
    }
    run.paging = Some(mode);
    Ok(run.finish(name, Some(policy.as_ref())))
}

struct Run<'a> {
    course: &'a Course<'a>,
    now: Counters,
    recorder: Recorder,
    switches: Vec<SwitchRow>,
    window: u32,
    phase: u32,
    paging: Option<PagingMode>,
    view: Option<crate::policy::PolicyView>,
    /// Cycles that were estimated from batches, by phase and mode: all but the base, which is known.
    spent: Vec<Vec<f64>>,
}

impl<'a> Run<'a> {
    fn new(course: &'a Course<'a>) -> Self {
        Self {
            course,
            now: Counters::default(),
            recorder: Recorder::default(),
            switches: Vec::new(),
            window: 0,
            phase: 0,
            paging: None,
            view: None,
            spent: vec![vec![0.0; course.modes.len()]; course.measured.len()],
        }
    }

    /// Ends the previous window when the segment begins a new one.
    fn begin(&mut self, segment: &Segment) {
        if segment.window != self.window {
            self.recorder
                .cut(self.now, self.phase, self.paging, self.view);
            self.window = segment.window;
        }
        self.phase = u32::try_from(segment.phase).unwrap_or(u32::MAX);
    }

    /// Enters the phase, if the segment does, and counts what is the segment's own.
    fn enter(&mut self, segment: &Segment, index: usize) -> Result<(), ModelError> {
        if segment.entry > 0.0 {
            let entry = self.course.phase(segment)?.entry[index].scaled(segment.entry);
            self.now = self.now + entry;
        }
        if let Some(own) = segment.own.get(index) {
            self.now = self.now + *own;
        }
        Ok(())
    }

    /// Instructions of the segment's steady part.
    fn steady(&self, segment: &Segment) -> Result<f64, ModelError> {
        let entry = self
            .course
            .phase(segment)?
            .entry
            .first()
            .map_or(0.0, |c| c.instructions);
        Ok((segment.instructions - entry * segment.entry).max(0.0))
    }

    /// What `instructions` of the segment's steady part count.
    fn spent(
        &self,
        segment: &Segment,
        index: usize,
        instructions: f64,
    ) -> Result<Counters, ModelError> {
        let batches = &self.course.phase(segment)?.batches;
        let mut spent =
            batches[segment.batch % batches.len()][index].scaled(instructions * segment.work);
        // The instructions are known, and with them what they cost by themselves.
        if spent.instructions > 0.0 {
            spent.cycles.base *= instructions / spent.instructions;
        }
        spent.instructions = instructions;
        Ok(spent)
    }

    fn advance(
        &mut self,
        segment: &Segment,
        index: usize,
        instructions: f64,
    ) -> Result<(), ModelError> {
        let spent = self.spent(segment, index, instructions)?;
        self.spent[segment.phase][index] += spent.cycles.beyond_base();
        self.now = self.now + spent;
        Ok(())
    }

    /// Hands exits to the policy in portions within which nothing can be decided.
    fn report(
        &mut self,
        segment: &Segment,
        policy: &mut dyn Policy,
        mode: &mut PagingMode,
        unreported: &mut f64,
    ) -> Result<(), ModelError> {
        // A remainder below one exit is rounding.
        while *mode == PagingMode::Shadow && *unreported >= 1.0 - 1e-6 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count
            let whole = (*unreported + 1e-6).floor() as u64;
            let portion = whole.min(policy.exits_until_decision().max(1));
            let wanted = policy.on_shadow_exits(portion, &reading(&self.now))?;
            self.recorder.state(self.now.instructions, policy);
            *unreported -= portion as f64;
            self.follow(segment, wanted, mode, unreported)?;
        }
        Ok(())
    }

    /// Does what the policy wants; a refill adds exits that are reported to it.
    fn follow(
        &mut self,
        segment: &Segment,
        wanted: PagingMode,
        mode: &mut PagingMode,
        unreported: &mut f64,
    ) -> Result<(), ModelError> {
        if wanted == *mode {
            return Ok(());
        }
        *mode = wanted;
        let costs = &self.course.setup.machine.costs;
        let cost = match wanted {
            PagingMode::Shadow => costs.switch_to_shadow,
            PagingMode::Nested => costs.switch_to_nested,
        };
        let cost_cycles = f64::from(cost);
        let instructions = self.now.instructions;
        self.switches.push(SwitchRow {
            instructions,
            to: wanted,
            cost_cycles,
        });
        self.now.switches += 1.0;
        self.now.cycles.switches += cost_cycles;
        *unreported = 0.0;
        if wanted == PagingMode::Shadow {
            let refill = self.course.phase(segment)?.refill;
            self.now = self.now + refill;
            *unreported = refill.shadow_paging_exits();
        }
        Ok(())
    }

    fn overflow(&mut self) {
        let costs = &self.course.setup.machine.costs;
        self.now.exits[Exit::Policy as usize] += 1.0;
        self.now.cycles.exits += f64::from(costs.exit + costs.policy);
    }

    fn finish(mut self, name: String, policy: Option<&dyn Policy>) -> ModeOutcome {
        let view = policy.map(Policy::view);
        self.recorder.cut(self.now, self.phase, self.paging, view);
        let mut variance = 0.0;
        for (phase, spent) in self.course.measured.iter().zip(&self.spent) {
            let Some(phase) = phase else { continue };
            let errors = spent.iter().enumerate();
            variance += errors
                .map(|(mode, cycles)| (cycles * phase.relative_error(mode)).powi(2))
                .sum::<f64>();
        }
        let total = self.now.cycles.total();
        let relative_error = Some(if total > 0.0 {
            variance.sqrt() / total
        } else {
            0.0
        });
        let (windows, states) = self.recorder.into_rows();
        ModeOutcome {
            name,
            totals: self.now,
            relative_error,
            windows,
            switches: self.switches,
            states,
        }
    }
}
