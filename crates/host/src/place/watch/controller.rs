//! What `watch` decides: one thread at a time, with hysteresis, and back when a move hurt.
//!
//! The controller is pure: windows in, decisions out, no clock and no system call, so that every
//! state can be tested.

mod effect;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use crate::place::watch::controller::effect::{Effect, Trial};

/// A thread; its start time distinguishes it from a later thread with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadKey {
    pub pid: i32,
    pub tid: i32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
}

/// Which cores a thread may run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The cores that it ran on before.
    Fast,
    /// The slow cores.
    Slow,
}

/// What a guest gets done: measures of its progress, the best first. All are per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Bytes on its link, in both directions.
    Link,
    /// Bytes that its processes read and wrote by system calls.
    Files,
    /// Bytes that its processes read from storage and wrote to it.
    Storage,
    /// CPU seconds of its vCPUs.
    Cpu,
}

impl Signal {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "traffic",
            Self::Files => "input and output",
            Self::Storage => "storage traffic",
            Self::Cpu => "vCPU time",
        }
    }

    /// A weaker signal than this says nothing about progress: an idle guest has timers, and a
    /// silent link the broadcasts of others.
    pub fn least(self) -> f64 {
        match self {
            Self::Link | Self::Files | Self::Storage => 4096.0,
            Self::Cpu => 0.05,
        }
    }
}

/// Signals and their strengths.
pub type Progress = BTreeMap<Signal, f64>;

/// A loss of a guest's throughput, in percent, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    pub percent: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// A service thread in one window.
#[derive(Debug, Clone)]
pub struct Seen {
    pub key: ThreadKey,
    /// The guest that it works for.
    pub guest: String,
    /// CPU seconds per second.
    pub cpu_share: f64,
    /// What its guest is expected to lose when the thread is on slow cores; the reason when that is
    /// not known.
    pub expected: Result<Loss, String>,
}

#[derive(Debug, Clone, Default)]
pub struct Window {
    /// The service threads that ran at the window's end and can be moved.
    pub threads: Vec<Seen>,
    /// What each guest got done.
    pub progress: BTreeMap<String, Progress>,
    /// How many cores the online slow CPUs are worth.
    pub slow_worth: f64,
    /// CPU seconds per second of everything that ran on them; None: not known.
    pub slow_busy: Option<f64>,
}

/// The limits of the controller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What a guest may lose, in percent.
    pub budget_percent: f64,
    /// Successive windows in which a thread has to qualify.
    pub steady: usize,
    /// The least number of windows over which an effect is measured, before and after a move.
    pub trial: usize,
    /// The largest number of windows, where a guest's progress is unsteady.
    pub longest_trial: usize,
    /// Windows between a trial's end and the next move.
    pub rest: usize,
    /// Windows until a thread that hurt is tried again; the number doubles each time.
    pub retry: usize,
    /// Speed of the slow cores relative to the fast ones.
    pub slow_speed: f64,
    /// How full the slow cores may get, from 0 to 1.
    pub headroom: f64,
    /// A thread that uses a smaller share of a core is not worth a move.
    pub least_share: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            budget_percent: 5.0,
            steady: 3,
            trial: 6,
            longest_trial: 24,
            rest: 2,
            retry: 120,
            slow_speed: 0.5,
            headroom: 0.8,
            least_share: 0.01,
        }
    }
}

/// What to do after a window.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Do nothing.
    Hold { reason: String },
    /// Put a thread on the cores of a class.
    Move {
        thread: ThreadKey,
        to: Class,
        reason: String,
    },
}

/// What is known about a thread.
#[derive(Debug, Default)]
struct Known {
    on_slow: bool,
    /// Successive windows in which it qualified for the other class.
    qualified: usize,
    hurt: u32,
    blocked: usize,
    /// It was to come back, but could not.
    owed: bool,
    cpu_share: f64,
}

/// The controller. A decision is made once a window, and counts as carried out unless
/// [`Controller::refused`] says otherwise.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    known: BTreeMap<ThreadKey, Known>,
    past: BTreeMap<String, BTreeMap<Signal, VecDeque<f64>>>,
    trial: Option<Trial>,
    resting: usize,
}

/// Expected losses above this multiple of the budget take a thread back to fast cores.
const TOO_MUCH: f64 = 1.5;
/// The most doublings of the time until a thread that hurt is tried again.
const MOST_DOUBLINGS: u32 = 8;

impl Controller {
    /// A controller that has moved nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            known: BTreeMap::new(),
            past: BTreeMap::new(),
            trial: None,
            resting: 0,
        }
    }

    /// Has the controller put the thread on slow cores?
    pub fn has_moved(&self, thread: ThreadKey) -> bool {
        self.known.get(&thread).is_some_and(|known| known.on_slow)
    }

    /// Record that a move was not carried out. After a move to slow cores, the thread is left alone
    /// for a long time; a move back is tried again in the next window.
    pub fn refused(&mut self, thread: ThreadKey, to: Class) {
        self.end_trial_of(thread);
        if let Some(known) = self.known.get_mut(&thread) {
            known.on_slow = to == Class::Fast;
            known.owed = to == Class::Fast;
            known.blocked = self.settings.retry;
        }
    }

    /// Record that somebody else has moved the thread: it is left alone for a long time.
    pub fn lost(&mut self, thread: ThreadKey) {
        self.end_trial_of(thread);
        if let Some(known) = self.known.get_mut(&thread) {
            known.on_slow = false;
            known.owed = false;
            known.qualified = 0;
            known.blocked = self.settings.retry;
        }
    }

    fn end_trial_of(&mut self, thread: ThreadKey) {
        if self.trial.as_ref().is_some_and(|one| one.thread == thread) {
            self.trial = None;
            self.resting = self.settings.rest;
        }
    }

    /// Decide what to do after this window.
    pub fn decide(&mut self, window: &Window) -> Decision {
        self.look(window);
        let decision = match self.trial.take() {
            Some(trial) => self.judge(trial, window),
            None => self.next(window),
        };
        self.remember(window);
        decision
    }

    fn look(&mut self, window: &Window) {
        let seen: BTreeMap<ThreadKey, &Seen> =
            window.threads.iter().map(|seen| (seen.key, seen)).collect();
        self.known.retain(|key, _| seen.contains_key(key));
        let budget = self.settings.budget_percent;
        for (key, seen) in seen {
            let known = self.known.entry(key).or_default();
            known.cpu_share = seen.cpu_share;
            known.blocked = known.blocked.saturating_sub(1);
            let qualifies = seen.expected.as_ref().is_ok_and(|loss| {
                if known.on_slow {
                    loss.low > TOO_MUCH * budget
                } else {
                    loss.high <= budget && seen.cpu_share >= self.settings.least_share
                }
            });
            known.qualified = if qualifies { known.qualified + 1 } else { 0 };
        }
    }

    /// Decide whether a trial goes on, is kept, or is undone.
    fn judge(&mut self, mut trial: Trial, window: &Window) -> Decision {
        if !self.known.contains_key(&trial.thread) {
            self.resting = self.settings.rest;
            return hold("the thread that was moved has ended");
        }
        trial.add(window.progress.get(&trial.guest));
        match trial.effect(&self.settings) {
            Effect::Hurt(reason) | Effect::Unmeasurable(reason) => {
                self.take_back(trial.thread, reason)
            }
            Effect::Harmless(reason) => {
                self.resting = self.settings.rest;
                hold(reason)
            }
            Effect::NotYet(reason) => {
                self.trial = Some(trial);
                hold(reason)
            }
        }
    }

    fn take_back(&mut self, thread: ThreadKey, reason: String) -> Decision {
        self.resting = self.settings.rest;
        if let Some(known) = self.known.get_mut(&thread) {
            known.on_slow = false;
            known.owed = false;
            known.qualified = 0;
            known.blocked = self.settings.retry << known.hurt;
            known.hurt = (known.hurt + 1).min(MOST_DOUBLINGS);
        }
        let to = Class::Fast;
        Decision::Move { thread, to, reason }
    }

    /// Decide without a trial: a thread that must come back, otherwise one that qualifies for slow
    /// cores.
    fn next(&mut self, window: &Window) -> Decision {
        if let Some((thread, reason)) = self.too_dear() {
            return self.take_back(thread, reason.to_owned());
        }
        if self.resting > 0 {
            self.resting -= 1;
            return hold("resting after a move");
        }
        let mut ready: Vec<&Seen> = window
            .threads
            .iter()
            .filter(|one| self.ready(one))
            .collect();
        if ready.is_empty() {
            return hold(self.idle(window));
        }
        let room = self.room(window);
        ready.retain(|seen| seen.cpu_share / self.settings.slow_speed <= room);
        if ready.is_empty() {
            return hold("the slow CPUs have no room for a thread that may go there");
        }
        // The busiest thread gains most from a slow core's lower power.
        ready.sort_by(|a, b| b.cpu_share.total_cmp(&a.cpu_share));
        let begun = ready
            .iter()
            .find_map(|seen| Some((*seen, self.before(&seen.guest)?)));
        match begun {
            Some((seen, before)) => self.begin(seen, before),
            None => hold(self.waiting(&ready)),
        }
    }

    fn too_dear(&self) -> Option<(ThreadKey, &'static str)> {
        self.known.iter().find_map(|(key, known)| {
            let dear = known.qualified >= self.settings.steady && known.blocked == 0;
            match known {
                Known { owed: true, .. } => Some((*key, "it could not be moved back before")),
                Known { on_slow: true, .. } if dear => Some((
                    *key,
                    "its guest is expected to lose more than the budget now",
                )),
                _ => None,
            }
        })
    }

    fn ready(&self, seen: &Seen) -> bool {
        self.known.get(&seen.key).is_some_and(|known| {
            !known.on_slow && known.blocked == 0 && known.qualified >= self.settings.steady
        })
    }

    fn begin(&mut self, seen: &Seen, before: BTreeMap<Signal, Vec<f64>>) -> Decision {
        let (thread, guest) = (seen.key, seen.guest.clone());
        let reason = seen.expected.as_ref().map_or_else(Clone::clone, |loss| {
            format!(
                "{guest} is expected to lose {:.1} % ({:.1} to {:.1})",
                loss.percent, loss.low, loss.high
            )
        });
        if let Some(known) = self.known.get_mut(&thread) {
            known.on_slow = true;
            known.qualified = 0;
        }
        self.trial = Some(Trial::new(thread, guest, before));
        Decision::Move {
            thread,
            to: Class::Slow,
            reason,
        }
    }

    /// Why threads that may move have to wait.
    fn waiting(&self, ready: &[&Seen]) -> String {
        let shown = |guest: &str| self.past.get(guest).is_some_and(|past| !past.is_empty());
        match ready.iter().find(|seen| !shown(&seen.guest)) {
            Some(seen) => format!(
                "nothing shows the progress of {}, one of whose threads may move; root sees more",
                seen.guest
            ),
            None => "the progress of a guest is watched before one of its threads may move".into(),
        }
    }

    /// Why no thread qualifies.
    fn idle(&self, window: &Window) -> String {
        let Some(first) = window.threads.first() else {
            return "no thread that could move works for a guest".into();
        };
        match &first.expected {
            Err(reason) if window.threads.iter().all(|seen| seen.expected.is_err()) => {
                reason.clone()
            }
            _ if self.known.values().any(|known| known.on_slow) => {
                "no other thread qualifies".into()
            }
            _ => "no thread qualifies".into(),
        }
    }

    /// Free time of the slow cores, at most one core's: a thread cannot run on two.
    fn room(&self, window: &Window) -> f64 {
        let on_slow = self.known.values().filter(|known| known.on_slow);
        let own: f64 = on_slow.map(|known| known.cpu_share).sum();
        let whole = window.slow_worth * self.settings.headroom;
        let used = window.slow_busy.map_or(own, |busy| busy.max(own));
        (whole - used).min(self.settings.headroom)
    }

    /// The last windows of a guest, if there are enough for a trial.
    fn before(&self, guest: &str) -> Option<BTreeMap<Signal, Vec<f64>>> {
        let past = self.past.get(guest)?;
        let long = past
            .iter()
            .filter(|(_, values)| values.len() >= self.settings.trial);
        let found: BTreeMap<_, Vec<f64>> = long
            .map(|(signal, values)| (*signal, values.iter().copied().collect()))
            .collect();
        (!found.is_empty()).then_some(found)
    }

    fn remember(&mut self, window: &Window) {
        self.past
            .retain(|guest, _| window.progress.contains_key(guest));
        for (guest, signals) in &window.progress {
            let past = self.past.entry(guest.clone()).or_default();
            past.retain(|signal, _| signals.contains_key(signal));
            for (signal, value) in signals {
                let values = past.entry(*signal).or_default();
                values.push_back(*value);
                if values.len() > self.settings.longest_trial {
                    values.pop_front();
                }
            }
        }
    }
}

fn hold(reason: impl Into<String>) -> Decision {
    Decision::Hold {
        reason: reason.into(),
    }
}
