//! One CPU of a trace: what is counted in its row, and what runs.

use super::columns::{COLUMNS, GUEST_TIME, LOST_RECORDS, RUN_TIME};
use super::events::{Effect, Kind};
use super::trace::Record;

/// `DOMID_IDLE` of Xen's public/xen.h: the CPU is idle.
pub(super) const IDLE_DOMAIN: u32 = 0x7fff;

/// One CPU; times are in ticks.
pub(super) struct Cpu {
    seq: u64,
    /// When the row that has not ended yet began.
    pub(super) start: u64,
    /// The time of the last record.
    pub(super) now: u64,
    counts: Vec<u64>,
    /// The domain and virtual CPU that run, if known.
    pub(super) runs: Option<(u32, u32)>,
    in_guest: Open,
    running: Open,
}

/// A period of time that has begun.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// The period is counted up to here; `None`: no period has begun.
    since: Option<u64>,
    /// Nothing is known about the time after this.
    known: Option<u64>,
}

impl Open {
    fn begin(now: u64) -> Self {
        Self {
            since: Some(now),
            known: None,
        }
    }

    /// Count the part that is not counted yet, up to `end`.
    fn count(&mut self, end: u64) -> u64 {
        let end = self.known.map_or(end, |known| known.min(end));
        let Some(since) = self.since.filter(|since| *since < end) else {
            return 0;
        };
        self.since = Some(end);
        end - since
    }

    /// End the period, and count the rest.
    fn end(&mut self, end: u64) -> u64 {
        let rest = self.count(end);
        *self = Self::default();
        rest
    }
}

/// A row that has ended; times are in ticks.
pub(super) struct Ended {
    pub(super) cpu: u32,
    pub(super) seq: u64,
    pub(super) tsc: u64,
    pub(super) length: u64,
    pub(super) counts: Vec<u64>,
    pub(super) runs: Option<(u32, u32)>,
    pub(super) in_guest: bool,
}

impl Cpu {
    pub(super) fn begin(now: u64) -> Self {
        Self {
            seq: 0,
            start: now,
            now,
            counts: vec![0; COLUMNS],
            runs: None,
            in_guest: Open::default(),
            running: Open::default(),
        }
    }

    /// End the row `length` ticks after its start.
    pub(super) fn row(&mut self, number: u32, length: u64) -> Ended {
        let end = self.start + length;
        let (guest, running) = (self.in_guest.count(end), self.running.count(end));
        self.add(GUEST_TIME, guest);
        self.add(RUN_TIME, running);
        let columns = self.counts.len();
        let ended = Ended {
            cpu: number,
            seq: self.seq,
            tsc: end,
            length,
            counts: std::mem::replace(&mut self.counts, vec![0; columns]),
            runs: self.runs,
            in_guest: self.in_guest.since.is_some(),
        };
        self.seq += 1;
        self.start = end;
        ended
    }

    /// Count a record of this kind, whose time is `now`.
    pub(super) fn count(&mut self, record: &Record, kind: Kind) {
        if let Some(at) = kind.column {
            self.add(at, 1);
        }
        match kind.effect {
            Effect::Nothing => {}
            Effect::Entry => {
                self.leave_guest();
                self.in_guest = Open::begin(self.now);
            }
            Effect::Exit => self.leave_guest(),
            Effect::Loss => {
                if let Some(lost) = record.lost() {
                    self.add(LOST_RECORDS, u64::from(lost.records));
                    self.runs_now((lost.domain, lost.vcpu));
                }
            }
            Effect::Run { gives_up, .. } => {
                if gives_up {
                    self.stop_running();
                }
                if let Some(runs) = kind.runs_now(record.extra()) {
                    self.runs_now(runs);
                }
            }
        }
    }

    /// Another virtual CPU begins to run, or the same one goes on.
    fn runs_now(&mut self, runs: (u32, u32)) {
        // A virtual CPU that is taken off the CPU has left its guest, whatever records were lost.
        self.leave_guest();
        self.stop_running();
        if runs.0 != IDLE_DOMAIN {
            self.running = Open::begin(self.now);
        }
        self.runs = Some(runs);
    }

    /// Nothing is known about the time after `then`.
    pub(super) fn loses(&mut self, then: u64) {
        self.in_guest.known = Some(then);
        self.running.known = Some(then);
    }

    fn stop_running(&mut self) {
        let time = self.running.end(self.now);
        self.add(RUN_TIME, time);
    }

    fn leave_guest(&mut self) {
        let time = self.in_guest.end(self.now);
        self.add(GUEST_TIME, time);
    }

    /// Add to a column of the row.
    pub(super) fn add(&mut self, column: usize, count: u64) {
        if column >= self.counts.len() {
            self.counts.resize(column + 1, 0);
        }
        if let Some(sum) = self.counts.get_mut(column) {
            *sum = sum.saturating_add(count);
        }
    }
}
