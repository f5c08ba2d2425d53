//! Huge pages for guests' memory: a lever beside the switch, which pauses no guest.
//!
//! Where walks cost enough, guests' memory becomes huge pages, a part in each window. Then the
//! cycles per instruction are compared with those before: a worse number gives the pages back, and
//! so does a host whose memory is short. A switch moves guests to other processes; what they have
//! then is left to them.

mod memory;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::gain::Gain;

pub use memory::Machine;

/// The least gain in percent that is worth copying guests' memory.
pub const LEAST_GAIN: f64 = 1.0;
/// Windows that are compared, before and after.
const WINDOWS: usize = 3;
/// The part of a window in which pages are made huge.
const PART: f64 = 0.1;
/// After pages were given back, this many dwells pass before they are huge again.
const AFTER_A_LOSS: f64 = 64.0;

/// What was given in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given {
    pub bytes: u64,
    /// The last refusal of the kernel.
    pub refused: Option<&'static str>,
}

/// What was made small again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenBack {
    pub bytes: u64,
    /// Bytes that the kernel did not make small: their pages were in use.
    pub left: u64,
}

/// Memory of guests that may have huge pages.
pub trait GuestMemory: fmt::Debug {
    /// Find the guests' memory that has small pages; returns what people should know about it.
    fn look(&mut self) -> Vec<String>;

    /// Bytes of it that have still to be tried.
    fn waiting(&self) -> u64;

    /// Is too little of the host's memory available for huge pages?
    fn is_short(&self) -> bool;

    /// Give huge pages for about this time, or until the host's memory is short.
    fn give(&mut self, time: Duration) -> Given;

    /// Make everything small again that was given. Fails with the reason.
    fn take_back(&mut self) -> Result<TakenBack, String>;

    /// Leave to the guests what was given.
    fn release(&mut self);
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Nothing is done before this time, in seconds since boot.
    Waiting(f64),
    Giving,
    /// All is given; the windows since then are counted.
    Judging,
}

/// The policy.
#[derive(Debug)]
pub struct HugePages {
    memory: Box<dyn GuestMemory>,
    phase: Phase,
    min_dwell_s: f64,
    /// Bytes that are huge because of this controller.
    bytes: u64,
    /// Bytes that the current round made huge.
    round: u64,
    refused: Option<&'static str>,
    /// Cycles per instruction of the last windows, and of those before pages became huge.
    recent: VecDeque<f64>,
    before: VecDeque<f64>,
}

impl HugePages {
    pub fn new(memory: Box<dyn GuestMemory>, min_dwell_s: f64) -> Self {
        Self {
            memory,
            phase: Phase::Waiting(0.0),
            min_dwell_s,
            bytes: 0,
            round: 0,
            refused: None,
            recent: VecDeque::new(),
            before: VecDeque::new(),
        }
    }

    /// Bytes that this controller made huge.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The paging mode has changed: cycles before and after it say nothing about pages.
    pub fn forget(&mut self) {
        self.recent.clear();
        self.before.clear();
        self.memory.release();
        self.bytes = 0;
        if !matches!(self.phase, Phase::Waiting(_)) {
            self.phase = Phase::Waiting(0.0);
        }
    }

    /// Handle a window of `window_s` seconds that ends at `now_s`, in which guests took `cpi` cycles
    /// per instruction; `None`: unknown, or they were idle. Returns what was done, a line each.
    pub fn window(
        &mut self,
        gain: Option<&Gain>,
        cpi: Option<f64>,
        window_s: f64,
        now_s: f64,
    ) -> Vec<String> {
        self.recent.extend(cpi);
        if self.recent.len() > WINDOWS {
            self.recent.pop_front();
        }
        if self.bytes > 0 && self.memory.is_short() {
            return vec![self.take_back("the host's memory is short", now_s)];
        }
        match self.phase {
            Phase::Waiting(until) if now_s < until => Vec::new(),
            Phase::Waiting(_) => self.begin(gain, now_s),
            Phase::Giving => self.give(window_s, now_s),
            Phase::Judging => self.judge(now_s).into_iter().collect(),
        }
    }

    fn begin(&mut self, gain: Option<&Gain>, now_s: f64) -> Vec<String> {
        let worth = gain.is_some_and(|gain| gain.percent >= LEAST_GAIN);
        if !worth || self.recent.len() < WINDOWS || self.memory.is_short() {
            return Vec::new();
        }
        let said = self.memory.look();
        if self.memory.waiting() == 0 {
            self.wait(now_s, 1.0);
        } else {
            self.before.clone_from(&self.recent);
            (self.phase, self.round, self.refused) = (Phase::Giving, 0, None);
        }
        said
    }

    fn give(&mut self, window_s: f64, now_s: f64) -> Vec<String> {
        let time = Duration::try_from_secs_f64(window_s * PART).unwrap_or_default();
        let given = self.memory.give(time);
        self.bytes += given.bytes;
        self.round += given.bytes;
        self.refused = given.refused.or(self.refused);
        if self.memory.waiting() > 0 {
            return Vec::new();
        }
        self.recent.clear();
        if self.round == 0 {
            self.wait(now_s, 1.0);
            let refused = self
                .refused
                .map(|why| format!("no huge page could be made: {why}"));
            return refused.into_iter().collect();
        }
        self.phase = Phase::Judging;
        vec![format!(
            "{} of guests' memory are huge pages",
            mib(self.round)
        )]
    }

    fn judge(&mut self, now_s: f64) -> Option<String> {
        if self.recent.len() < WINDOWS {
            return None;
        }
        let worst = self.before.iter().copied().reduce(f64::max);
        let mut after: Vec<f64> = self.recent.iter().copied().collect();
        after.sort_by(f64::total_cmp);
        let median = after[WINDOWS / 2];
        if let Some(worst) = worst.filter(|worst| median > *worst) {
            let why = format!("cycles per instruction rose from {worst:.2} to {median:.2}");
            return Some(self.take_back(&why, now_s));
        }
        self.wait(now_s, 1.0);
        None
    }

    fn take_back(&mut self, why: &str, now_s: f64) -> String {
        self.wait(now_s, AFTER_A_LOSS);
        match self.memory.take_back() {
            Ok(TakenBack { bytes, left }) => {
                self.bytes = left;
                let stays = match left {
                    0 => String::new(),
                    _ => format!("; {} stay huge, their pages are in use", mib(left)),
                };
                format!("{} of huge pages are given back: {why}{stays}", mib(bytes))
            }
            Err(reason) => format!("{why}, but huge pages cannot be given back: {reason}"),
        }
    }

    fn wait(&mut self, now_s: f64, dwells: f64) {
        self.phase = Phase::Waiting(now_s + dwells * self.min_dwell_s);
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
pub(super) mod tests;
