//! One mode of a simulation: a core, the policy that steers it, and its windows.

use super::outcome::{ModeOutcome, SwitchRow};
use super::recorder::Recorder;
use crate::error::ModelError;
use crate::model::core::{Core, CoreSetup};
use crate::model::counters::Counters;
use crate::model::mode::Translating;
use crate::policy::{Policy, Reading};

/// What a VMM could read from the counters.
pub(super) fn reading(counters: &Counters) -> Reading {
    Reading {
        instructions: counters.instructions,
        cycles: counters.cycles.total(),
        tlb_misses: counters.l2_tlb_misses,
        shadow_exits: counters.shadow_paging_exits(),
        walk_cycles: Some(counters.cycles.walks),
        vmm_cycles: Some(counters.cycles.exits + counters.cycles.refill),
    }
}

/// The most portions of a step's exits before the rest is handed over as one: a step may have
/// billions of exits.
const MOST_PORTIONS: u32 = 4096;

/// A policy, and when it is due.
struct Steering {
    policy: Box<dyn Policy>,
    next_window: f64,
    exits_told: f64,
}

/// One mode of a simulation.
pub(super) struct Lane {
    name: String,
    pub(super) core: Core,
    steering: Option<Steering>,
    recorder: Recorder,
    switches: Vec<SwitchRow>,
}

impl Lane {
    pub(super) fn fixed(
        name: String,
        setup: &CoreSetup,
        translating: Translating,
    ) -> Result<Self, ModelError> {
        let core = Core::new(setup, translating)?;
        Ok(Self {
            name,
            core,
            steering: None,
            recorder: Recorder::default(),
            switches: Vec::new(),
        })
    }

    pub(super) fn steered(
        name: String,
        setup: &CoreSetup,
        policy: Box<dyn Policy>,
    ) -> Result<Self, ModelError> {
        let mut lane = Self::fixed(name, setup, policy.wanted().into())?;
        lane.recorder.state(0.0, policy.as_ref());
        let next_window = policy.window_instructions() as f64;
        lane.steering = Some(Steering {
            policy,
            next_window,
            exits_told: 0.0,
        });
        Ok(lane)
    }

    /// Tells the policy what happened in the block that ended, and follows it. Returns whether the
    /// TLB may have been emptied.
    pub(super) fn steer(&mut self) -> Result<bool, ModelError> {
        let Some(steering) = &mut self.steering else {
            return Ok(false);
        };
        let Some(current) = self.core.paging() else {
            return Ok(false);
        };
        let counters = self.core.counters();
        let overflow = counters.instructions >= steering.next_window;
        let exits = counters.shadow_paging_exits() - steering.exits_told;
        if exits < 1.0 && !overflow {
            return Ok(false);
        }
        let mut wanted = current;
        if exits >= 1.0 {
            wanted = steering.tell_exits(exits, &reading(&counters))?;
            let policy = steering.policy.as_ref();
            self.recorder.state(counters.instructions, policy);
        }
        if overflow {
            self.core.policy_exit();
            wanted = steering.policy.on_window(&reading(&self.core.counters()))?;
            let policy = steering.policy.as_ref();
            self.recorder.state(counters.instructions, policy);
            let length = steering.policy.window_instructions() as f64;
            let passed = ((counters.instructions - steering.next_window) / length).floor() + 1.0;
            steering.next_window += passed * length;
        }
        if wanted != current {
            let before = self.core.counters().cycles.switches;
            self.core.switch(wanted);
            let cost_cycles = self.core.counters().cycles.switches - before;
            let instructions = counters.instructions;
            self.switches.push(SwitchRow {
                instructions,
                to: wanted,
                cost_cycles,
            });
        }
        Ok(true)
    }

    /// The number of rows of the output so far.
    pub(super) fn rows(&self) -> usize {
        self.recorder.rows() + self.switches.len()
    }

    /// Ends a window.
    pub(super) fn cut(&mut self, phase: u32) {
        let view = self
            .steering
            .as_ref()
            .map(|steering| steering.policy.view());
        self.recorder
            .cut(self.core.counters(), phase, self.core.paging(), view);
    }

    pub(super) fn finish(self) -> ModeOutcome {
        let (windows, states) = self.recorder.into_rows();
        ModeOutcome {
            name: self.name,
            totals: self.core.counters(),
            relative_error: None,
            windows,
            switches: self.switches,
            states,
        }
    }
}

impl Steering {
    /// Hands over exits in portions between which nothing can be decided; after many portions that
    /// decided nothing, on equal readings, it hands over the rest at once.
    fn tell_exits(
        &mut self,
        exits: f64,
        now: &Reading,
    ) -> Result<vtax_sys::kvm::PagingMode, ModelError> {
        self.exits_told += exits.floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count
        let mut left = exits as u64;
        let started = self.policy.wanted();
        for turn in 0_u32.. {
            if left == 0 || self.policy.wanted() != started {
                break;
            }
            let portion = match turn {
                MOST_PORTIONS => left,
                _ => left.min(self.policy.exits_until_decision().max(1)),
            };
            self.policy.on_shadow_exits(portion, now)?;
            left -= portion;
        }
        Ok(self.policy.wanted())
    }
}
