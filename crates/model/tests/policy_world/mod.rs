//! A guest that is a table of the cost of every window in either mode.

// Each test program uses a part of this module.
#![allow(dead_code)]

use vtax_model::model::machine::Costs;
use vtax_model::policy::oracle::{OracleInput, OraclePlan};
use vtax_model::policy::{Policy, Reading};
use vtax_sys::kvm::PagingMode;

/// Retired instructions of a window.
pub const WINDOW: u64 = 1_000_000;
/// Cycles of an exit, including the VMM's work.
pub const EXIT: f64 = 3000.0;
/// Cycles of a walk in shadow and in nested paging.
const WALK: [f64; 2] = [30.0, 100.0];
/// Cycles of a change to shadow paging without the refill.
pub const TO_SHADOW: f64 = 3500.0;
/// Parts of a window between which events are handed to the policy.
const SLICES: u32 = 50;

/// A window, which is the same in both modes except for the cost of paging.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub base: f64,
    pub exits: f64,
    pub misses: f64,
}

impl Window {
    pub fn cycles(&self, mode: PagingMode) -> f64 {
        let exits = match mode {
            PagingMode::Shadow => self.exits * EXIT,
            PagingMode::Nested => 0.0,
        };
        self.base + exits + self.misses * WALK[mode as usize]
    }
}

/// The costs of changes of the mode.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// Exits that fill the shadow tables again after a change to shadow paging.
    pub refill_exits: f64,
    /// Cycles of a change to nested paging.
    pub to_nested: f64,
}

impl Changes {
    /// A refill that takes `windows` windows of a million cycles; the change to nested paging costs
    /// half of that, as the DAV2M paper measured (section 5).
    pub fn of(windows: f64) -> Self {
        Self {
            refill_exits: windows * 1e6 / EXIT,
            to_nested: windows * 5e5,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub cycles: f64,
    pub switches: usize,
}

/// Runs `policy` over `windows`; `counters` says whether walk and VMM cycles are available.
pub fn run(
    policy: &mut dyn Policy,
    windows: &[Window],
    changes: Changes,
    counters: bool,
) -> Outcome {
    let mut guest = Guest {
        now: Reading {
            walk_cycles: counters.then_some(0.0),
            vmm_cycles: counters.then_some(0.0),
            ..Reading::default()
        },
        mode: policy.wanted(),
        changes,
        refill: 0.0,
        pending: 0.0,
        switches: 0,
    };
    for window in windows {
        for _ in 0..SLICES {
            guest.slice(window, policy);
        }
        let wanted = policy.on_window(&guest.now).unwrap();
        guest.change(wanted);
    }
    Outcome {
        cycles: guest.now.cycles,
        switches: guest.switches,
    }
}

struct Guest {
    now: Reading,
    mode: PagingMode,
    changes: Changes,
    /// The exits of the refill that remain.
    refill: f64,
    /// Pending exits: whole ones, and the fraction of the next.
    pending: f64,
    switches: usize,
}

impl Guest {
    fn slice(&mut self, window: &Window, policy: &mut dyn Policy) {
        let part = 1.0 / f64::from(SLICES);
        let walks = window.misses * WALK[self.mode as usize] * part;
        self.now.instructions += WINDOW as f64 * part;
        self.now.tlb_misses += window.misses * part;
        self.now.cycles += window.base * part + walks;
        self.now.walk_cycles = self.now.walk_cycles.map(|cycles| cycles + walks);
        if self.mode == PagingMode::Shadow {
            // The refill is over after a fifth of a window.
            let refill = self.refill.min(self.changes.refill_exits * part * 5.0);
            self.refill -= refill;
            self.pending += window.exits * part + refill;
            self.exits(policy);
        }
    }

    fn exits(&mut self, policy: &mut dyn Policy) {
        while self.pending >= 1.0 && self.mode == PagingMode::Shadow {
            let due = policy.exits_until_decision();
            assert!(due >= 1);
            let count = self.pending.floor().min(due as f64);
            self.pending -= count;
            self.now.shadow_exits += count;
            self.now.cycles += count * EXIT;
            self.now.vmm_cycles = self.now.vmm_cycles.map(|cycles| cycles + count * EXIT);
            let wanted = policy.on_shadow_exits(count as u64, &self.now).unwrap();
            self.change(wanted);
        }
    }

    fn change(&mut self, wanted: PagingMode) {
        if wanted == self.mode {
            return;
        }
        self.mode = wanted;
        self.switches += 1;
        match wanted {
            PagingMode::Shadow => {
                self.now.cycles += TO_SHADOW;
                self.refill = self.changes.refill_exits;
                self.pending = 0.0;
            }
            PagingMode::Nested => self.now.cycles += self.changes.to_nested,
        }
    }
}

pub fn oracle(windows: &[Window], changes: Changes) -> OracleInput {
    let table = |mode| windows.iter().map(|window| window.cycles(mode)).collect();
    OracleInput {
        cycles: [table(PagingMode::Shadow), table(PagingMode::Nested)],
        to_nested: changes.to_nested,
        to_shadow: TO_SHADOW,
        refill: vec![changes.refill_exits * EXIT; windows.len()],
        start: Some(PagingMode::Shadow),
    }
}

/// The better static mode, without the change that it might need at the start.
pub fn best_static(windows: &[Window], changes: Changes) -> OraclePlan {
    let input = OracleInput {
        start: None,
        ..oracle(windows, changes)
    };
    input.best_static().unwrap()
}

/// Costs that agree with the constants above; the policy has to learn the cost of the change
/// itself.
pub fn costs() -> Costs {
    Costs {
        exit: 1500,
        nested_fault: 1500,
        shadow_fill: 1500,
        reflect_fault: 1000,
        table_write: 1500,
        unsync: 1000,
        sync_table: 500,
        sync_entry: 50,
        zap: 1000,
        invlpg: 500,
        load_cr3: 500,
        build_root: 2000,
        other: 500,
        policy: 500,
        switch_to_nested: 2000,
        switch_to_shadow: 2000,
        guest_fault: 1000,
        system_call: 200,
        context_switch: 1500,
        guest_load_cr3: 300,
        guest_invlpg: 200,
    }
}
