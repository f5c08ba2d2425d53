//! Moves service threads to slow cores, one at a time, as long as guests do not lose by it.
//!
//! In each window [`follow`] and [`progress`] measure what threads and guests did, [`controller`]
//! decides, and [`moves`] carries the decision out.

pub mod controller;
pub mod follow;
pub mod moves;
pub mod predictor;
pub mod progress;
pub mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vtax_sys::clock::process_time_ns;
use vtax_sys::signals::Signals;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::cores::choose::Pair;
use crate::place::cpus::{online, written};
use crate::place::role::Role;
use crate::place::watch::controller::{
    Class, Controller, Decision, Loss, Seen, Settings, Signal, ThreadKey, Window,
};
use crate::place::watch::follow::{Followed, Follower};
use crate::place::watch::moves::{Found, Moves};
use crate::place::watch::predictor::{Predictor, Work};
use crate::place::watch::progress::{Done, Sources};
use crate::place::watch::report::{Line, Named};
use crate::place::window::cpu_ticks;

/// The least time between two searches for threads and their counters.
const BETWEEN_SEARCHES: Duration = Duration::from_secs(60);
/// The time between searches is this many times the CPU time of a search: searches cost 0.025 % of
/// a core.
const TIMES_A_SEARCH: u64 = 4000;
const NO_PREDICTOR: &str = "what guests would lose is not known: no --predictor is given";

/// The options of `watch`.
#[derive(Debug)]
pub struct Request {
    pub cores: Pair,
    /// Only these processes, their descendants, and the kernel's threads for them; empty: all.
    pub roots: Vec<i32>,
    /// Move threads; otherwise only say what would be moved.
    pub apply: bool,
    /// The length of a window.
    pub every: Duration,
    /// End after this time.
    pub time: Option<Duration>,
    /// Predicts what guests lose; None: nothing is moved.
    pub predictor: Option<Predictor>,
    /// The bandwidth of a link in bits per second.
    pub link_bits: Option<f64>,
    /// The limits.
    pub settings: Settings,
    /// The folder of the journal.
    pub state: PathBuf,
}

/// Watch until the time is over or a signal comes, and then undo all moves. `say` gets a line for
/// each window, and a line for each thread that came back by itself.
///
/// Fails when it cannot begin, when `say` does, and when the kernel refuses to undo a move.
pub fn watch(
    tree: &Tree,
    request: Request,
    signals: &Signals,
    mut say: impl FnMut(&Line) -> Result<(), Error>,
) -> Result<(), Error> {
    let every = request.every;
    let end = request.time.map(|time| Instant::now() + time);
    let mut watch = Watch::begin(tree, request)?;
    loop {
        let next = watch.begun + every;
        let until = end.map_or(next, |end| end.min(next));
        let signal = signals.wait_until(until);
        let signal = signal.map_err(|errno| Error::system("waiting", errno, "try again"))?;
        if signal.is_some() {
            break;
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        watch.window().iter().try_for_each(&mut say)?;
    }
    watch.end()?.iter().try_for_each(say)
}

struct Watch<'a> {
    tree: &'a Tree,
    request: Request,
    controller: Controller,
    follower: Follower,
    sources: Sources,
    moves: Option<Moves>,
    /// When the current window began.
    begun: Instant,
    /// When the next search is due.
    search_at: Instant,
    /// Busy time of the slow CPUs, in clock ticks.
    slow_ticks: Option<u64>,
}

impl<'a> Watch<'a> {
    fn begin(tree: &'a Tree, request: Request) -> Result<Self, Error> {
        let moves = request.apply.then(|| Moves::begin(tree, &request.state));
        let moves = moves.transpose()?;
        let now = Instant::now();
        let mut watch = Self {
            tree,
            controller: Controller::new(request.settings.clone()),
            request,
            follower: Follower::new(),
            sources: Sources::default(),
            moves,
            begun: now,
            search_at: now,
            slow_ticks: None,
        };
        watch.search();
        watch.measure();
        Ok(watch)
    }

    fn search(&mut self) {
        let begin = process_time_ns();
        let said = self.follower.left_out;
        self.follower.search(self.tree, &self.request.roots);
        self.sources.find(self.tree, &self.follower.processes());
        let spent = process_time_ns().saturating_sub(begin);
        let pause = Duration::from_nanos(spent.saturating_mul(TIMES_A_SEARCH));
        self.search_at = Instant::now() + pause.max(BETWEEN_SEARCHES);
        if self.follower.left_out > said {
            eprintln!(
                "vtax: {} threads are not followed: too many open files; raise ulimit -n",
                self.follower.left_out
            );
        }
    }

    /// End a window and begin the next; returns what was done in it.
    fn measure(&mut self) -> Window {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-3);
        self.begun = Instant::now();
        self.follower.read(seconds);
        let done = self.sources.read(self.tree, seconds);
        let on = online(self.tree);
        let slow: Vec<usize> = self.slow_online(&on);
        let ticks = self.busy_ticks(&slow);
        let busy = self.slow_ticks.zip(ticks).map(|(before, now)| {
            let spent = u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
            f64::from(spent) / f64::from(vtax_sys::clock::ticks_per_second()) / seconds
        });
        self.slow_ticks = ticks;
        Window {
            threads: self.seen(&done),
            progress: self.progress(done),
            slow_worth: self.worth(slow.len()),
            slow_busy: busy,
        }
    }

    /// How many cores the online slow CPUs are worth.
    #[expect(clippy::cast_precision_loss, reason = "cores are few")]
    fn worth(&self, on: usize) -> f64 {
        let cores = &self.request.cores;
        cores.slow_worth * on as f64 / cores.slow.len() as f64
    }

    fn slow_online(&self, online: &[usize]) -> Vec<usize> {
        let slow = self.request.cores.slow.iter();
        slow.filter(|cpu| online.contains(cpu)).copied().collect()
    }

    /// When a CPU comes online or goes offline the sum changes; then it is not known.
    fn busy_ticks(&self, slow: &[usize]) -> Option<u64> {
        let all = cpu_ticks(self.tree);
        let every: Option<Vec<u64>> = slow
            .iter()
            .map(|cpu| all.get(cpu).map(|ticks| ticks.busy))
            .collect();
        (slow.len() == self.request.cores.slow.len()).then(|| every.map(|all| all.iter().sum()))?
    }

    /// The threads that can be moved, each with what its guest would lose.
    fn seen(&self, done: &BTreeMap<String, Done>) -> Vec<Seen> {
        let work = self.work(done);
        let expected: BTreeMap<&str, Result<Loss, String>> = work
            .iter()
            .map(|(guest, work)| (*guest, self.expected(guest, *work)))
            .collect();
        let movable = self.movable().filter_map(|(key, thread)| {
            let guest = thread.domain.as_deref()?;
            Some(Seen {
                key,
                guest: guest.to_owned(),
                cpu_share: thread.spent?.cpu,
                expected: expected.get(guest)?.clone(),
            })
        });
        movable.collect()
    }

    fn movable(&self) -> impl Iterator<Item = (ThreadKey, &Followed)> {
        let threads = self.follower.threads();
        threads.filter(|(key, thread)| {
            self.controller.has_moved(*key) || thread.is_movable(&self.request.cores.fast)
        })
    }

    /// What the service threads of each guest did together: predictors are for all of them
    /// together.
    fn work(&self, done: &BTreeMap<String, Done>) -> BTreeMap<&str, Work> {
        let mut work: BTreeMap<&str, Work> = BTreeMap::new();
        for (key, thread) in self.follower.threads() {
            let Some((guest, spent)) = thread.domain.as_deref().zip(thread.spent) else {
                continue;
            };
            let on_slow = self.controller.has_moved(key);
            let speed = if on_slow { self.speed() } else { 1.0 };
            let sum = work.entry(guest).or_default();
            sum.cpu += spent.cpu * speed;
            sum.delay += spent.delay;
        }
        for (guest, sum) in &mut work {
            let busier = done.get(*guest).and_then(|done| done.busier);
            let link = busier.zip(self.request.link_bits);
            sum.device = link.map(|(bytes, bits)| 8.0 * bytes / bits);
        }
        work
    }

    fn speed(&self) -> f64 {
        self.request.settings.slow_speed
    }

    fn expected(&self, guest: &str, work: Work) -> Result<Loss, String> {
        let predictor = self.request.predictor.as_ref().ok_or(NO_PREDICTOR)?;
        predictor.loss(guest, work, self.speed() * 100.0)
    }

    fn progress(&self, done: BTreeMap<String, Done>) -> BTreeMap<String, controller::Progress> {
        let mut progress: BTreeMap<String, controller::Progress> = done
            .into_iter()
            .map(|(guest, done)| (guest, done.progress))
            .collect();
        for (_, thread) in self.follower.threads() {
            let is_vcpu = thread.member.role == Role::Vcpu;
            let guest = thread.member.guest.as_deref().filter(|_| is_vcpu);
            let signals = guest.and_then(|guest| progress.get_mut(guest));
            if let Some((signals, spent)) = signals.zip(thread.spent) {
                *signals.entry(Signal::Cpu).or_default() += spent.cpu;
            }
        }
        progress
    }

    /// Carry out one window; returns its lines.
    fn window(&mut self) -> Vec<Line> {
        if Instant::now() >= self.search_at {
            self.search();
        }
        let window = self.measure();
        let mut lines = self.look_after();
        let decision = self.controller.decide(&window);
        lines.push(self.carry_out(decision));
        lines.extend(self.leavers());
        lines
    }

    /// Handle moved threads whose CPUs went offline, or that somebody else has moved.
    fn look_after(&mut self) -> Vec<Line> {
        let found = self
            .moves
            .as_ref()
            .map(|moves| moves.look(&online(self.tree)));
        let mut lines = Vec::new();
        for (key, found) in found.unwrap_or_default() {
            self.controller.lost(key);
            let line = match found {
                Found::Offline(cpu) => self.back(key, &format!("CPU {cpu} is not online any more")),
                Found::Elsewhere(cpus) => {
                    let reason = format!("somebody put it on CPUs {cpus}: it is left there");
                    self.let_go(key, &reason, |moves| moves.forget(key))
                }
                // Processes that the thread started still exist.
                Found::Ended => self.let_go(key, "it has ended", |moves| moves.back(key).map(drop)),
            };
            lines.push(line);
        }
        lines
    }

    /// Handle moved threads that the controller does not know any more, because they serve no
    /// guest.
    fn leavers(&mut self) -> Vec<Line> {
        let moved = self.moves.as_ref().map(Moves::threads).unwrap_or_default();
        let mut lines = Vec::new();
        for key in moved {
            if self.controller.has_moved(key) {
                continue;
            }
            let reason = match self.follower.get(key) {
                Some(_) => "it could not be moved back before",
                None => "it serves no guest any more",
            };
            lines.push(self.back(key, reason));
        }
        lines
    }

    fn back(&mut self, key: ThreadKey, reason: &str) -> Line {
        let done = self
            .moves
            .as_mut()
            .map_or(Ok(false), |moves| moves.back(key));
        let line = self.line(reason).moving(self.named(key), Class::Fast);
        match done {
            Ok(true) => line.carried_out(),
            Ok(false) => line.because("it has ended"),
            Err(refused) => line.because(&refused),
        }
    }

    fn let_go(
        &mut self,
        key: ThreadKey,
        reason: &str,
        how: impl FnOnce(&mut Moves) -> Result<(), String>,
    ) -> Line {
        let done = self.moves.as_mut().map_or(Ok(()), how);
        let line = self.line(reason).about(self.named(key));
        match done {
            Ok(()) => line,
            Err(refused) => line.because(&refused),
        }
    }

    fn carry_out(&mut self, decision: Decision) -> Line {
        match decision {
            Decision::Hold { reason } => self.line(&reason),
            Decision::Move { thread, to, reason } => {
                let line = self.line(&reason).moving(self.named(thread), to);
                match self.make(thread, to) {
                    Some(Ok(true)) => return line.carried_out(),
                    // Without --apply nothing is refused, and nothing is to be repeated.
                    None => self.controller.refused(thread, Class::Slow),
                    Some(Ok(false)) => return line.because("it has ended"),
                    Some(Err(refused)) => {
                        self.controller.refused(thread, to);
                        return line.because(&refused);
                    }
                }
                line
            }
        }
    }

    /// Carry out a move; `None`: moves are not to be made.
    fn make(&mut self, thread: ThreadKey, to: Class) -> Option<Result<bool, String>> {
        self.moves.as_ref()?;
        if to == Class::Slow {
            // The process may have become another program since the last search.
            self.search();
            let known = self.follower.get(thread);
            let serves = known.is_some_and(|one| one.domain.is_some());
            if !serves {
                return Some(Err("it is no part of virtualization any more".into()));
            }
        }
        let on = online(self.tree);
        let slow = self.slow_online(&on);
        let moves = self.moves.as_mut()?;
        Some(match to {
            Class::Fast => moves.back(thread),
            Class::Slow if slow.is_empty() => Err("no slow CPU is online".into()),
            Class::Slow => moves.put(thread, &slow, &on),
        })
    }

    fn end(mut self) -> Result<Vec<Line>, Error> {
        let Some(moves) = self.moves.take() else {
            return Ok(Vec::new());
        };
        let lines = moves.threads().into_iter().map(|key| {
            let line = self.line("the watch ends: it is where it was");
            line.moving(self.named(key), Class::Fast).carried_out()
        });
        let lines = lines.collect();
        moves.end()?;
        Ok(lines)
    }

    fn line(&self, reason: &str) -> Line {
        let served = self.follower.threads();
        let count = served.filter(|(_, one)| one.domain.is_some()).count();
        Line::hold(reason, count, &written(&self.request.cores.slow))
    }

    fn named(&self, key: ThreadKey) -> Named {
        Named::new(key, self.follower.get(key).map(|one| &one.member))
    }
}
