//! Handles one window after the other: what was counted, what the policy wants, what is done.
//!
//! Whatever is wrong with a window, the mode stays and the reason is reported; but a mode that is
//! only tried does not stay without its policy. A policy that was not obeyed is reset: its
//! conclusions rest on a mode that never came.

mod huge_pages;
mod trial;

use vtax_model::policy::Reading;
use vtax_sys::kvm::PagingMode;
use vtax_sys::terminal::Error;

use crate::control::drive::Driver;
use crate::control::gain::gain;
use crate::control::guard::Limits;
use crate::control::host::Host;
use crate::control::huge_pages::HugePages;
use crate::control::line::{Decision, Line};
use crate::control::policy_file::Recipe;
use crate::control::sensors::{Quantity, Sensors, Step};
use crate::control::state::State;

use trial::Verdict;

/// Below this many instructions per second guests are idle: their rates say nothing.
const IDLE: f64 = 1e6;
/// The quantities that every counting policy needs.
const NEEDED: [Quantity; 4] = [
    Quantity::Instructions,
    Quantity::Cycles,
    Quantity::TlbMisses,
    Quantity::PagingExits,
];

pub type Save<'a> = &'a mut dyn FnMut(&State) -> Result<(), Error>;

/// Why the mode stays.
type Held = String;

#[derive(Debug)]
pub struct Control<H> {
    host: H,
    sensors: Sensors,
    recipe: Recipe,
    limits: Limits,
    apply: bool,
    state: State,
    saved: Option<State>,
    driver: Option<Driver>,
    /// Was a switch rehearsed for the policy, which is done once?
    rehearsed: bool,
    /// Why an interrupted switch could not be finished.
    stranded: Option<String>,
    /// The lever that needs no switch, where it is wanted.
    huge_pages: Option<HugePages>,
    events: Vec<String>,
}

impl<H: Host> Control<H> {
    /// A controller that continues from `state`; it switches the host only with `apply`.
    pub fn new(host: H, sensors: Sensors, recipe: Recipe, limits: Limits, apply: bool) -> Self {
        Self {
            host,
            sensors,
            recipe,
            limits,
            apply,
            state: State::default(),
            saved: None,
            driver: None,
            rehearsed: false,
            stranded: None,
            huge_pages: None,
            events: Vec::new(),
        }
    }

    /// The same controller, which gives guests huge pages too.
    #[must_use]
    pub fn with(mut self, huge_pages: Option<HugePages>) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Continue from the saved state. An interrupted switch is finished, where switching is
    /// allowed.
    pub fn resume(&mut self, state: State, said: Vec<String>, now_s: f64) {
        self.state = state;
        self.events.extend(said);
        if let Some(trial) = self.state.guard.trial {
            let event = format!("the mode was only tried, from {} paging", trial.home.name());
            self.events.push(event);
        }
        let Some(to) = self.state.switching else {
            return;
        };
        let cut = format!("a switch to {} was cut off", to.name());
        if !self.apply {
            self.events.push(format!(
                "{cut}: run `vtax paging recover` if guests are paused"
            ));
            return;
        }
        match self.host.recover() {
            Ok(found) => {
                self.state.switching = None;
                self.state.mode = None;
                self.not_made(now_s, &cut);
                self.events.push(format!("{cut}: {found}"));
            }
            Err(reason) => self.stranded = Some(format!("{cut} and is not recovered: {reason}")),
        }
    }

    /// Decide by another recipe from here on, or keep the old one when the new one is invalid.
    pub fn reload(&mut self, recipe: Result<Recipe, Error>) {
        match recipe {
            Ok(recipe) => {
                let name = recipe.name();
                self.events.push(format!("policy {name} was read again"));
                if recipe.events != self.recipe.events {
                    self.events
                        .push("other perf events are counted after a restart".into());
                }
                self.recipe = recipe;
                self.driver = None;
            }
            Err(error) => self
                .events
                .push(format!("{error}; the earlier policy stays")),
        }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Handle the window that ends at `now_s` in seconds since boot, which is `time` in seconds
    /// since 1970.
    pub fn window(&mut self, now_s: f64, time: f64, save: Save<'_>) -> Line {
        let mut line = Line::new(time, self.recipe.name());
        let step = self.sensors.step(now_s);
        rates(&step, &mut line);
        match self.decide(&step, now_s, &mut line, save) {
            Ok(()) => {}
            Err(held) => line.reason = held,
        }
        if let Some(driver) = &self.driver {
            let view = driver.view();
            line.state = Some(view.state.to_owned());
            line.threshold_vexit = view.threshold_vexit;
            line.threshold_tmiss = view.threshold_tmiss;
        }
        self.apply_huge_pages(&step, now_s, &mut line);
        self.keep(save);
        line.events.splice(0..0, self.events.drain(..));
        line
    }

    /// Save the state, if it has changed.
    fn keep(&mut self, save: Save<'_>) {
        if self.saved.as_ref() != Some(&self.state) {
            match save(&self.state) {
                Ok(()) => self.saved = Some(self.state.clone()),
                Err(error) => self.events.push(format!("the state is not kept: {error}")),
            }
        }
    }

    fn decide(
        &mut self,
        step: &Step,
        now_s: f64,
        line: &mut Line,
        save: Save<'_>,
    ) -> Result<(), Held> {
        let mode = match self.host.mode() {
            Ok(mode) => mode,
            Err(reason) => {
                self.driver = None;
                return Err(reason);
            }
        };
        line.mode = Some(mode);
        self.notice(mode, now_s);
        if let Some(gain) = gain(mode, step, self.recipe.costs(), self.recipe.machine()) {
            line.gain_percent = Some(gain.percent);
            line.gain_source = Some(gain.source);
        }
        if let Some(reason) = &self.stranded {
            return Err(reason.clone());
        }
        match self.state.guard.trial {
            Some(trial) if trial.home != mode => {
                return match self.verdict(trial, mode, step, now_s) {
                    Verdict::Open(reason) => Err(format!("{} is tried; {reason}", mode.name())),
                    Verdict::Kept => {
                        self.state.guard.trial = None;
                        Err(format!(
                            "{} keeps {}, which it tried",
                            self.said(),
                            mode.name()
                        ))
                    }
                    Verdict::Back(why) => {
                        let home = trial.home.name();
                        let waits = |held| format!("back to {home}: {why}; {held}");
                        self.may_go_back(now_s).map_err(waits)?;
                        self.go_back(trial, why, now_s, line, save)
                    }
                };
            }
            // The switch that began it was not made.
            _ => self.state.guard.trial = None,
        }
        let wanted = self.wanted(mode, step)?;
        if wanted == mode {
            return Err(format!("{} keeps {}", self.said(), mode.name()));
        }
        let trying = self.driver.as_ref().is_some_and(Driver::is_trying);
        let wants = if trying { "wants to try" } else { "wants" };
        let wish = format!("{} {wants} {}", self.said(), wanted.name());
        self.carry_out(wanted, trying, now_s, line, save)
            .map_err(|reason| {
                let without = if trying {
                    ", and decides without a trial"
                } else {
                    ""
                };
                format!("{wish}; {reason}{without}")
            })?;
        line.decision = Decision::Switch;
        line.to = Some(wanted);
        line.reason = wish;
        Ok(())
    }

    /// The policy and its state, in words.
    fn said(&self) -> String {
        let view = self.driver.as_ref().map(Driver::view);
        let state = view.map_or("", |view| view.state);
        format!("policy {} ({state})", self.recipe.name())
    }

    /// Take note of the mode: somebody else may have changed it.
    fn notice(&mut self, mode: PagingMode, now_s: f64) {
        if self.state.mode.is_some_and(|before| before != mode) {
            let name = mode.name();
            self.events
                .push(format!("somebody else has switched the host to {name}"));
            self.state.guard.changed(now_s);
            self.driver = None;
            self.restart();
        }
        self.state.mode = Some(mode);
    }

    /// The mode that the policy wants after this window.
    ///
    /// Fails with the reason when the window says nothing.
    fn wanted(&mut self, mode: PagingMode, step: &Step) -> Result<PagingMode, Held> {
        let counting = self.recipe.counts();
        if counting {
            usable(step)?;
        }
        if step.guests == 0 {
            return Err("no guest runs".into());
        }
        if self.driver.is_none() {
            // Where nobody knows the pause, a switch costs what the operator allows. That is too much
            // for most guests, and a policy that is told so never tries.
            let known = self.state.guard.expected_pause().map(|(pause, _)| pause);
            if counting && self.apply && known.is_none() && !self.rehearsed {
                self.rehearsed = true;
                self.state.guard.rehearsed_ms = self.host.rehearse(mode.other()).ok();
            }
            let pause_ms = known.or(self.state.guard.rehearsed_ms);
            let pause_ms = pause_ms.unwrap_or(self.limits.max_pause_ms);
            let cycles = step.rate(Quantity::Cycles).unwrap_or(0.0) * pause_ms / 1e3;
            let policy = self.recipe.make(mode, cycles);
            let policy = policy.map_err(|error| format!("policy: {error}"))?;
            self.driver = Some(Driver::new(policy));
        }
        let Some(driver) = &mut self.driver else {
            return Ok(mode);
        };
        // The policy's wish waits until the dwell is over; the policy is told nothing about the
        // mode that it has left.
        if driver.wanted() != mode || !counting {
            return Ok(driver.wanted());
        }
        let told = driver.feed(mode, &reading(mode, step));
        told.map_err(|error| {
            self.driver = None;
            format!("policy {}: {error}", self.recipe.name())
        })
    }

    /// Switch, or check that a switch would be possible.
    fn carry_out(
        &mut self,
        to: PagingMode,
        trying: bool,
        now_s: f64,
        line: &mut Line,
        save: Save<'_>,
    ) -> Result<(), Held> {
        self.state.guard.waits(now_s, &self.limits)?;
        if let Err(reason) = self.host.look(to) {
            return Err(self.refused(now_s, format!("the host cannot be switched: {reason}")));
        }
        self.afford(to, now_s, line)?;
        if !self.apply {
            // Without `apply`, take the switch as made, so that it is not reported in every window.
            self.state.guard.changed(now_s);
            self.driver = None;
            return Ok(());
        }
        self.state.switching = Some(to);
        if trying {
            self.state
                .guard
                .begin_trial(to.other(), now_s, &self.limits);
        }
        if let Err(error) = save(&self.state) {
            self.state.switching = None;
            return Err(self.refused(now_s, format!("the state cannot be kept: {error}")));
        }
        self.saved = Some(self.state.clone());
        self.switch(to, now_s, line)
    }

    /// Is the pause of a switch within the budget? It is that of earlier switches, or of a
    /// rehearsal, which only a controller makes that may switch.
    fn afford(&mut self, to: PagingMode, now_s: f64, line: &mut Line) -> Result<(), Held> {
        if self.state.guard.expected_pause().is_none() {
            if !self.apply {
                line.events
                    .push("nobody knows how long guests would pause".into());
                return Ok(());
            }
            match self.host.rehearse(to) {
                Ok(took_ms) => self.state.guard.rehearsed_ms = Some(took_ms),
                Err(reason) => {
                    let reason = format!("the switch could not be rehearsed: {reason}");
                    return Err(self.refused(now_s, reason));
                }
            }
        }
        let allowed = self.state.guard.within_budget(&self.limits);
        if let Err(reason) = &allowed {
            self.state.guard.refused(now_s, &self.limits, reason);
            // A rehearsal says how things were.
            self.state.guard.rehearsed_ms = None;
            self.driver = None;
        }
        allowed
    }

    /// Switch the host now; the state says so already.
    fn switch(&mut self, to: PagingMode, now_s: f64, line: &mut Line) -> Result<(), Held> {
        self.restart();
        let done = self.host.switch(to);
        self.state.switching = None;
        match done {
            Ok(done) => {
                self.state.guard.switched(now_s, done.pause_ms);
                self.state.mode = Some(to);
                line.mode = Some(to);
                line.applied = true;
                line.pause_ms = done.pause_ms;
                line.events.extend(done.warnings);
                let most = self.limits.max_pause_ms;
                if let Some(pause) = done.pause_ms.filter(|pause| *pause > most) {
                    line.events.push(format!(
                        "guests paused {pause:.0} ms, longer than --max-pause {most:.0} ms"
                    ));
                }
                Ok(())
            }
            Err(reason) => Err(self.refused(now_s, format!("the switch failed: {reason}"))),
        }
    }

    fn refused(&mut self, now_s: f64, reason: String) -> Held {
        self.not_made(now_s, &reason);
        self.driver = None;
        reason
    }

    /// Record that a switch was not made: in a trial the return, otherwise a change.
    fn not_made(&mut self, now_s: f64, reason: &str) {
        let there = self.host.mode().ok();
        let home = self.state.guard.trial.map(|trial| trial.home);
        if home.is_some() && home == there {
            // The host never left.
            self.state.guard.trial = None;
        }
        if self.state.guard.trial.is_some() {
            self.state.guard.return_failed(now_s, &self.limits, reason);
        } else {
            self.state.guard.failed(now_s, &self.limits, reason);
        }
    }
}

/// Check that the policy can be told about this window. Fails with the reason when not.
fn usable(step: &Step) -> Result<(), Held> {
    if !step.faults.is_empty() {
        let faults: Vec<String> = step.faults.iter().map(ToString::to_string).collect();
        return Err(faults.join("; "));
    }
    let lacking = |quantity: &&Quantity| step.counts.get(**quantity).is_none();
    if let Some(quantity) = NEEDED.iter().find(lacking) {
        if step.guests == 0 {
            return Err("no guest runs".into());
        }
        return Err(format!(
            "nobody counts {}: that needs a processor whose counters this host has, or --counters",
            quantity.name()
        ));
    }
    let instructions = step.rate(Quantity::Instructions);
    if instructions.is_none_or(|rate| rate < IDLE) {
        return Err("the guests are idle".into());
    }
    Ok(())
}

fn reading(mode: PagingMode, step: &Step) -> Reading {
    let count = |quantity| step.counts.get(quantity);
    let exits = match mode {
        PagingMode::Shadow => count(Quantity::PagingExits)
            .map(|exits| exits + count(Quantity::Cr3Exits).unwrap_or(0.0)),
        // In nested paging KVM counts missing host frames as paging exits; both modes have those.
        PagingMode::Nested => None,
    };
    Reading {
        instructions: count(Quantity::Instructions).unwrap_or(0.0),
        cycles: count(Quantity::Cycles).unwrap_or(0.0),
        tlb_misses: count(Quantity::TlbMisses).unwrap_or(0.0),
        shadow_exits: exits.unwrap_or(0.0),
        walk_cycles: count(Quantity::WalkCycles),
        vmm_cycles: count(Quantity::VmmCycles),
    }
}

fn rates(step: &Step, line: &mut Line) {
    for quantity in Quantity::ALL {
        if let Some(rate) = step.rate(quantity) {
            line.rates.insert(step.name(quantity), rate);
        }
    }
    line.rates.insert("guests".into(), step.guests as f64);
    line.events.extend(step.events.iter().cloned());
}

#[cfg(test)]
mod tests;
