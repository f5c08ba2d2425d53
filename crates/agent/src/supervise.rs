//! Waiting for one command: until it ends, its time is up, or nobody wants its result any more.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};
use thiserror::Error;

use crate::descendants::{self, Process};
use crate::launch::Launch;
use crate::run_answer::RunAnswer;
use crate::steal;
use vtax_sys::calls::children::{self, End, Usage};
use vtax_sys::calls::signals::reset_actions;
use vtax_sys::clock::{self, Stamp};
use vtax_sys::confine::Confinement;
use vtax_sys::program_counts::{Counted, ProgramCounts};
use vtax_sys::signals::{self, Signals};
use vtax_sys::tree::Tree;

/// How long a command may take to tidy up when it is asked to end; `mpirun` takes 1.0 s.
const TERM_PATIENCE: Duration = Duration::from_secs(2);
/// How long killed processes may take to end; a process that hangs in the kernel cannot be waited
/// for.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
const KILL_ROUND: Duration = Duration::from_millis(20);
/// How long processes that a command left may take to end by themselves before they count as cut
/// off.
const LEFT_PATIENCE: Duration = Duration::from_millis(40);
/// How often descendants are searched for at most before the found ones are killed.
const STOP_ROUNDS: u32 = 50;

/// Why a command has no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// The program could not be started.
    #[error("{0}")]
    Spawn(String),
    #[error("{0}")]
    System(String),
    /// A signal asks the agent to end; the command has been killed.
    #[error("ended by signal {0}")]
    Signal(i32),
    /// The watched channel closed; the command has been killed.
    #[error("the channel closed")]
    Closed,
}

/// Something whose end also ends the command.
pub trait Watch {
    /// The descriptor to poll, with the events to ask for; `None`: there is nothing to watch.
    fn poll_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)>;
    /// Called when the descriptor is ready; true when the watched thing has ended.
    fn ready(&mut self) -> bool;
    /// When the watch ends unless the descriptor is ready before; `None`: never.
    fn deadline(&self) -> Option<Instant> {
        None
    }
    /// Say that a command begins or has ended; false when there is nobody left to hear it.
    fn announce(&mut self, _step: Step) -> bool {
        true
    }
}

/// What is announced about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The command is about to start.
    Begins,
    /// The command has ended and was reaped; processes that it left running still exist.
    Ended,
}

/// A watch of nothing.
#[derive(Debug)]
pub struct Nothing;

impl Watch for Nothing {
    fn poll_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        None
    }

    fn ready(&mut self) -> bool {
        false
    }
}

/// Runs commands one after the other and leaves no process of theirs behind.
#[derive(Debug)]
pub struct Supervisor {
    signals: Signals,
    tree: Tree,
    /// The CPUs whose steal time is counted; `None` where there is no steal clock.
    steal_cpus: Option<Vec<usize>>,
    confinement: Confinement,
    mounts: Option<OwnedFd>,
    ending: Option<i32>,
    /// What earlier commands left running by request.
    left: BTreeSet<Process>,
}

/// When a command is ended, and what may stay afterwards.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// Time after which the command is killed with all that it started; `None`: never.
    pub timeout: Option<Duration>,
    /// Processes that it leaves running when it ends by itself live until [`Supervisor::kill_all`].
    pub leave: bool,
    /// Count its instructions and cycles.
    pub count: bool,
}

impl Supervisor {
    /// Become the parent of every orphaned descendant, and take signals as events.
    ///
    /// Fails with `System` when the kernel refuses the signal descriptor or the role of subreaper.
    pub fn new(
        tree: Tree,
        steal_cpus: Option<Vec<usize>>,
        confinement: Confinement,
    ) -> Result<Self, RunError> {
        reset_actions();
        let signals =
            Signals::take(&[Signal::SIGCHLD]).map_err(|errno| system("signalfd", errno))?;
        nix::sys::prctl::set_child_subreaper(true).map_err(|errno| system("prctl", errno))?;
        Ok(Self {
            signals,
            tree,
            steal_cpus,
            confinement,
            mounts: None,
            ending: None,
            left: BTreeSet::new(),
        })
    }

    /// Run commands in this mount namespace from now on; `None`: in this process's.
    pub fn run_in(&mut self, mounts: Option<OwnedFd>) {
        self.mounts = mounts;
    }

    /// Wait for `watch` or a signal; false when the agent is to end.
    ///
    /// Fails with `System` when the kernel refuses to poll, to read signals or to reap.
    pub fn idle(&mut self, watch: &mut dyn Watch) -> Result<bool, RunError> {
        let ended = self.watch(watch, None)?;
        reap_orphans(None)?;
        Ok(self.ending.is_none() && !ended)
    }

    /// The signal that asked the agent to end.
    pub fn ending_signal(&self) -> Option<i32> {
        self.ending
    }

    /// Run a command to its end. Whatever it leaves running is killed, on every path out, unless
    /// the terms say otherwise. Processes that were there before are not touched.
    ///
    /// Fails with `Spawn` when the program cannot be started, with `Signal` or `Closed` when a
    /// signal or the end of `watch` comes first, and with `System` when a process does not end or a
    /// system call fails.
    pub fn run(
        &mut self,
        launch: Launch,
        terms: Terms,
        watch: &mut dyn Watch,
    ) -> Result<RunAnswer, RunError> {
        self.left = if reap_any()? {
            self.others(&BTreeSet::new()).into_iter().collect()
        } else {
            BTreeSet::new()
        };
        self.confinement.open();
        let stolen = self.stolen_ticks();
        let missing = launch.missing_interpreter();
        let held = launch
            .hold(&self.confinement, self.mounts.as_ref())
            .map_err(RunError::Spawn)?;
        let counts = terms.count.then(|| ProgramCounts::of(held.process));
        let set_up = held.used();
        // Before the first reading of this clock, so that the listener's span includes this span.
        if !watch.announce(Step::Begins) {
            return Err(RunError::Closed);
        }
        let begin = Stamp::now();
        let released = held.release().map_err(|errno| system("write", errno))?;
        let child = released.process;
        // A time-out beyond the clock's range is no time-out.
        let deadline = terms
            .timeout
            .and_then(|timeout| begin.time.checked_add(timeout));
        let timed_out = match self.until_ended(child, deadline, watch) {
            Ok(ended) => !ended,
            Err(error) => {
                self.kill_others(Some(child))?;
                return Err(error);
            }
        };
        if timed_out {
            self.kill_until_ended(child)?;
        }
        let (end, mut usage) =
            children::wait_with_usage(child).map_err(|errno| system("wait4", errno))?;
        usage.subtract(set_up);
        let spent = Stamp::now().since(&begin);
        let heard = watch.announce(Step::Ended);
        let stolen = self.stolen_since(stolen);
        let mut left_processes = 0;
        if timed_out || !terms.leave {
            if !timed_out {
                left_processes = self.left_running()?;
            }
            self.kill_others(None)?;
        }
        if !heard {
            return Err(RunError::Closed);
        }
        if let Some(errno) = released.refusal() {
            let missing = missing.filter(|_| errno == Errno::ENOENT);
            return Err(RunError::Spawn(
                missing.unwrap_or_else(|| errno.desc().into()),
            ));
        }
        let counted = counts.map(ProgramCounts::read).unwrap_or_default();
        Ok(RunAnswer {
            left_processes,
            ..answer(spent, end, &usage, counted, stolen, timed_out)
        })
    }

    /// Kill every descendant and reap it, including those left by request.
    ///
    /// Fails with `System` when a process does not end in time, or when the kernel refuses to poll,
    /// to read signals or to reap.
    pub fn kill_all(&mut self) -> Result<(), RunError> {
        self.left.clear();
        self.kill_others(None)
    }

    /// The number of descendants that still run after the command has ended. The last processes of
    /// a pipeline or of `mpirun` are about to end and do not count.
    fn left_running(&mut self) -> Result<u64, RunError> {
        let deadline = Instant::now() + LEFT_PATIENCE;
        while reap_any()? {
            let others = self.others(&self.left).len();
            if others == 0 || Instant::now() > deadline {
                return Ok(others as u64);
            }
            self.wait(None, Some(KILL_ROUND))?;
        }
        Ok(0)
    }

    /// Kill every descendant except those left earlier; `group`, if given, is asked to end first.
    fn kill_others(&mut self, group: Option<Pid>) -> Result<(), RunError> {
        if let Some(group) = group {
            self.ask_to_end(group)?;
        }
        let deadline = Instant::now() + KILL_PATIENCE;
        while reap_any()? {
            // A process that ends during the search is then a zombie or the agent's own child, so
            // an empty search means that there is no descendant.
            if self.kill_once(group) == 0 && !self.left.is_empty() {
                break;
            }
            if Instant::now() > deadline {
                return Err(RunError::System(
                    "kill: some processes of the command do not end".into(),
                ));
            }
            self.wait(None, Some(KILL_ROUND))?;
        }
        Ok(())
    }

    /// True when the child has ended, false when the deadline came first. The child is not reaped
    /// yet.
    fn until_ended(
        &mut self,
        child: Pid,
        deadline: Option<Instant>,
        watch: &mut dyn Watch,
    ) -> Result<bool, RunError> {
        while !reap_orphans(Some(child))? {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            let ended = self.watch(watch, left)?;
            if let Some(signal) = self.ending {
                return Err(RunError::Signal(signal));
            }
            if ended {
                return Err(RunError::Closed);
            }
        }
        Ok(true)
    }

    /// Ask the command to end: `mpirun` and others remove their temporary files then.
    fn ask_to_end(&mut self, child: Pid) -> Result<(), RunError> {
        let _ = killpg(child, Signal::SIGTERM);
        let deadline = Instant::now() + TERM_PATIENCE;
        while !reap_orphans(Some(child))? && Instant::now() < deadline {
            self.wait(None, Some(KILL_ROUND))?;
        }
        Ok(())
    }

    fn kill_until_ended(&mut self, child: Pid) -> Result<(), RunError> {
        self.ask_to_end(child)?;
        let deadline = Instant::now() + KILL_PATIENCE;
        while !reap_orphans(Some(child))? {
            self.kill_once(Some(child));
            if Instant::now() > deadline {
                return Err(RunError::System("kill: the command does not end".into()));
            }
            self.wait(None, Some(KILL_ROUND))?;
        }
        Ok(())
    }

    /// Kill the group first, at once, and then descendants that made groups of their own. Returns
    /// how many descendants there were.
    fn kill_once(&self, group: Option<Pid>) -> usize {
        // Processes left by request are in the control group too.
        if self.left.is_empty() {
            self.confinement.kill();
        }
        // An error means that the process is gone, which is the goal.
        if let Some(group) = group {
            let _ = killpg(group, Signal::SIGKILL);
        }
        let others = self.stop_others();
        for process in &others {
            let _ = kill(Pid::from_raw(process.number), Signal::SIGKILL);
        }
        others.len()
    }

    /// Stop all descendants before the first is killed: a process that forks faster than it is
    /// killed cannot fork while it is stopped.
    fn stop_others(&self) -> BTreeSet<Process> {
        let mut stopped = BTreeSet::new();
        for _ in 0..STOP_ROUNDS {
            let others: BTreeSet<Process> = self.others(&self.left).into_iter().collect();
            let fresh: Vec<&Process> = others.difference(&stopped).collect();
            if fresh.is_empty() {
                break;
            }
            for process in fresh {
                let _ = kill(Pid::from_raw(process.number), Signal::SIGSTOP);
            }
            stopped = others;
        }
        stopped
    }

    fn others(&self, spared: &BTreeSet<Process>) -> Vec<Process> {
        descendants::of(&self.tree, getpid().as_raw(), spared)
    }

    /// Wait as `wait` does, at most until the watch's deadline; true when the watch has ended.
    fn watch(&mut self, watch: &mut dyn Watch, limit: Option<Duration>) -> Result<bool, RunError> {
        let deadline = watch.deadline();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ready = self.wait(Some(&*watch), limit.into_iter().chain(left).min())?;
        if ready {
            return Ok(watch.ready());
        }
        Ok(deadline.is_some_and(|deadline| deadline <= Instant::now()))
    }

    /// Wait for a signal, the watched descriptor or the time; true when the descriptor is ready.
    fn wait(
        &mut self,
        watch: Option<&dyn Watch>,
        limit: Option<Duration>,
    ) -> Result<bool, RunError> {
        let mut entries = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if let Some((descriptor, events)) = watch.and_then(Watch::poll_for) {
            entries.push(PollFd::new(descriptor, events));
        }
        match poll(
            &mut entries,
            limit.map_or(PollTimeout::NONE, signals::timeout),
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("poll", errno)),
        }
        let ready = entries.get(1).and_then(PollFd::any).unwrap_or(false);
        let signal = self
            .signals
            .drain()
            .map_err(|errno| system("read", errno))?;
        self.ending = self.ending.or(signal.map(|signal| signal as i32));
        Ok(ready)
    }

    fn stolen_ticks(&self) -> Option<u64> {
        steal::ticks(&self.tree, self.steal_cpus.as_ref()?)
    }

    /// Steal time in seconds since `before`.
    #[allow(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
    fn stolen_since(&self, before: Option<u64>) -> Option<f64> {
        let ticks = self.stolen_ticks()?.saturating_sub(before?);
        Some(ticks as f64 / f64::from(clock::ticks_per_second()))
    }
}

/// Reap ended children other than `keep`; true when `keep` has ended.
fn reap_orphans(keep: Option<Pid>) -> Result<bool, RunError> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::All, look) {
            Ok(status) => match status.pid() {
                Some(pid) if Some(pid) == keep => return Ok(true),
                Some(pid) => {
                    let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
                }
                None => return Ok(false),
            },
            Err(Errno::ECHILD) => return Ok(false),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("waitid", errno)),
        }
    }
}

/// Reap everything that has ended; false when no child is left at all.
///
/// No child means no descendant: the agent is the subreaper of all of them.
fn reap_any() -> Result<bool, RunError> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return Ok(true),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => return Ok(false),
            Err(errno) => return Err(system("waitpid", errno)),
        }
    }
}

fn system(call: &str, errno: Errno) -> RunError {
    RunError::System(format!("{call}: {}", errno.desc()))
}

fn answer(
    (wall, tsc_ticks): (Duration, Option<u64>),
    end: End,
    usage: &Usage,
    counted: Counted,
    steal_s: Option<f64>,
    timed_out: bool,
) -> RunAnswer {
    let (exit_code, signal) = match end {
        End::Exited(code) => (Some(code), None),
        End::Signaled(signal) => (None, Some(signal)),
    };
    RunAnswer {
        wall_s: wall.as_secs_f64(),
        tsc_ticks,
        instructions: counted.instructions,
        instructions_user: counted.instructions_user,
        cycles: counted.cycles,
        user_s: usage.user.as_secs_f64(),
        system_s: usage.system.as_secs_f64(),
        steal_s,
        max_rss_bytes: usage.max_rss_bytes,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        exit_code,
        signal,
        timed_out,
        left_processes: 0,
    }
}
