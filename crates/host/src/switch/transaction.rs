//! The switch itself, phase by phase.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::switch::error::{Failure, SwitchError};
use crate::switch::guest::GuestPlan;
use crate::switch::incoming::{IncomingQemu, Keeper};
use crate::switch::journal::{Entry, Journal, Transaction};
use crate::switch::module::EXPEDITED;
use crate::switch::plan::{SwitchPlan, plan};
use crate::switch::qmp::Qmp;
use crate::switch::report::{Clock, GuestReport, Report};
use crate::switch::rollback;
use crate::switch::saving::{self, Lacked, Saved};
use crate::switch::steps::{Fault, Phase, Step};
use crate::switch::sys::{self, wait_for_end};
use crate::switch::{Observer, SwitchOptions};
use vtax_sys::tree::Tree;

/// The limit of all waits while guests are paused, as a multiple of the longest single wait.
const PAUSED_WAITS: u32 = 2;

/// Move every guest of this host to the wanted mode.
///
/// Fails with `Refused` before anything is touched, with `Undone` when a step failed and everything
/// was put back, and with `Stranded` when going back failed too. `Refused` about the journal means
/// that the switch is done and its journal could not be removed.
pub fn switch(
    options: &SwitchOptions,
    observer: &mut impl Observer,
) -> Result<Report, SwitchError> {
    let _held_back = SignalsHeldBack::new();
    let mut journal = Journal::open(&options.state_dir)?;
    journal.must_be_empty()?;
    let mut clock = Clock::start();
    observer.phase("look");
    let plan = plan(options)?;
    clock.ends_as("look");
    if plan.from == plan.to {
        return Ok(already(&plan));
    }
    let warnings = plan.warnings();
    for text in &warnings {
        observer.warning(text);
    }
    let (guests, connections): (Vec<_>, Vec<_>) = plan
        .guests
        .into_iter()
        .map(|guest| (guest.plan, guest.qmp))
        .unzip();
    let transaction = Transaction {
        from: plan.from,
        to: plan.to,
        module: plan.module,
        guests,
        rcu_expedited: Tree::host().text(EXPEDITED),
    };
    let mut run = Run {
        options,
        transaction: &transaction,
        journal: &mut journal,
        clock,
        crossings: Vec::new(),
        failed: None,
        deadline: None,
    };
    match run.all(connections, observer) {
        Ok(guests) => {
            let clock = run.clock;
            journal.end().map_err(|failure| stuck(&failure))?;
            Ok(report(&transaction, guests, clock, warnings))
        }
        Err(failure) => {
            let step = run.failed.take().unwrap_or_default();
            // Held QEMUs end and QMP connections close when these are dropped.
            drop(run);
            let outcome = rollback::roll_back(
                &transaction,
                &mut journal,
                Some(transaction.from),
                options.patience,
            );
            Err(rollback::undone(
                &transaction,
                journal,
                step,
                &failure,
                outcome,
            ))
        }
    }
}

/// A switch that has begun is finished first: Ctrl-C takes effect after it.
pub(crate) struct SignalsHeldBack(Option<SigSet>);

impl SignalsHeldBack {
    pub(crate) fn new() -> Self {
        let mut signals = SigSet::empty();
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ] {
            signals.add(signal);
        }
        Self(signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok())
    }
}

impl Drop for SignalsHeldBack {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // This process set the mask a moment ago, so setting it back does not fail.
            let _ = before.thread_set_mask();
        }
    }
}

fn stuck(failure: &Failure) -> SwitchError {
    SwitchError::refused(
        "journal",
        format!("the switch is done, but its journal stays: {failure}"),
        "run `vtax paging recover`, which removes it",
    )
}

fn already(plan: &SwitchPlan) -> Report {
    Report {
        from: plan.from,
        to: plan.to,
        module: plan.module.name.clone(),
        switched: false,
        guests: Vec::new(),
        phases: Vec::new(),
        reload_ms: None,
        pause_over_reload: None,
        warnings: Vec::new(),
    }
}

fn report(
    transaction: &Transaction,
    guests: Vec<GuestReport>,
    clock: Clock,
    warnings: Vec<String>,
) -> Report {
    let reload = clock.sum(&[Phase::Unload, Phase::Load]);
    let longest = guests
        .iter()
        .filter_map(|guest| guest.pause_ms)
        .fold(None, |longest: Option<f64>, pause| {
            Some(longest.map_or(pause, |longest| longest.max(pause)))
        });
    Report {
        from: transaction.from,
        to: transaction.to,
        module: transaction.module.name.clone(),
        switched: true,
        guests,
        phases: clock.phases(),
        reload_ms: Some(reload),
        pause_over_reload: longest.map(|longest| longest / reload),
        warnings,
    }
}

/// One guest during a switch.
struct Crossing<'a> {
    number: usize,
    plan: &'a GuestPlan,
    qmp: Qmp,
    process: OwnedFd,
    state: PathBuf,
    file: Option<File>,
    keeper: Option<Keeper>,
    incoming: Option<IncomingQemu>,
    saved: Option<Saved>,
}

impl Crossing<'_> {
    fn incoming(&mut self) -> Result<&mut IncomingQemu, Failure> {
        let incoming = self.incoming.as_mut();
        incoming.ok_or_else(|| Failure::Other("it has no new QEMU".into()))
    }
}

struct Run<'a> {
    options: &'a SwitchOptions,
    transaction: &'a Transaction,
    journal: &'a mut Journal,
    clock: Clock,
    crossings: Vec<Crossing<'a>>,
    /// The current step, for the error.
    failed: Option<String>,
    /// When paused guests must run again, in the new mode or back in the old one.
    deadline: Option<Instant>,
}

impl Run<'_> {
    fn all(
        &mut self,
        connections: Vec<Qmp>,
        observer: &mut impl Observer,
    ) -> Result<Vec<GuestReport>, Failure> {
        observer.phase(Phase::Prepare.name());
        self.prepare(connections)?;
        self.ends(Phase::Prepare);
        self.deadline = Some(Instant::now() + PAUSED_WAITS * self.options.patience);
        self.save()?;
        self.ends(Phase::Save);
        self.end()?;
        self.ends(Phase::End);
        self.step(Step::Unload, None)?;
        self.transaction.module.unload(self.patience())?;
        self.kill_in(Phase::Unload);
        self.ends(Phase::Unload);
        self.step(Step::Load, None)?;
        self.transaction.module.load(self.transaction.to)?;
        self.kill_in(Phase::Load);
        self.verify()?;
        self.ends(Phase::Load);
        self.restore()?;
        self.ends(Phase::Restore);
        let guests = self.resume()?;
        self.ends(Phase::Resume);
        observer.phase(Phase::Finish.name());
        self.finish();
        self.ends(Phase::Finish);
        Ok(guests)
    }

    fn ends(&mut self, phase: Phase) {
        self.clock.ends(phase);
    }

    /// How long the next wait may last.
    fn patience(&self) -> Duration {
        let single = self.options.patience;
        self.deadline.map_or(single, |deadline| {
            single.min(deadline.saturating_duration_since(Instant::now()))
        })
    }

    /// A step begins: it fails at this point when a test wants it to.
    fn step(&mut self, step: Step, guest: Option<usize>) -> Result<(), Failure> {
        let name = guest
            .and_then(|number| self.transaction.guests.get(number))
            .map(|guest| format!("{step} of {} (pid {})", guest.name, guest.pid));
        self.failed = Some(name.unwrap_or_else(|| step.to_string()));
        let number = guest.map_or(1, |number| number + 1);
        if self.options.fault == Some(Fault::Fail(step, number)) {
            return Err(Failure::Other("made to fail by --fault".into()));
        }
        Ok(())
    }

    /// The program dies at this point when a test wants it to.
    fn kill_in(&self, phase: Phase) {
        if self.options.fault == Some(Fault::Kill(phase)) {
            let _ = nix::sys::signal::raise(Signal::SIGKILL);
        }
    }

    fn prepare(&mut self, connections: Vec<Qmp>) -> Result<(), Failure> {
        self.step(Step::Journal, None)?;
        self.journal.begin(self.transaction)?;
        let transaction = self.transaction;
        for (number, (guest, qmp)) in transaction.guests.iter().zip(connections).enumerate() {
            self.failed = Some(format!("prepare {} (pid {})", guest.name, guest.pid));
            let process = sys::pidfd_open(guest.pid).map_err(Failure::call("pidfd_open"))?;
            self.crossings.push(Crossing {
                number,
                plan: guest,
                qmp,
                process,
                state: self.journal.state_file(number, 0),
                file: None,
                keeper: None,
                incoming: None,
                saved: None,
            });
        }
        for number in 0..self.crossings.len() {
            self.prepare_guest(number)?;
            self.kill_in(Phase::Prepare);
        }
        rollback::expedite(true)
    }

    fn prepare_guest(&mut self, number: usize) -> Result<(), Failure> {
        let patience = self.patience();
        self.step(Step::Ready, Some(number))?;
        let Some(crossing) = self.crossings.get_mut(number) else {
            return Ok(());
        };
        crossing.file = Some(saving::ready(&mut crossing.qmp, &crossing.state, patience)?);
        self.step(Step::Keep, Some(number))?;
        let Some(crossing) = self.crossings.get_mut(number) else {
            return Ok(());
        };
        let keeper = Keeper::make(crossing.plan, crossing.process.as_fd())?;
        let entry = Entry::Keeper(number, keeper.pid, keeper.start_ticks);
        crossing.keeper = Some(keeper);
        self.journal.add(&entry)?;
        self.step(Step::Start, Some(number))?;
        let Some(crossing) = self.crossings.get_mut(number) else {
            return Ok(());
        };
        let source = Some(crossing.process.as_fd());
        let incoming = IncomingQemu::make(crossing.plan, source, &crossing.state, patience)?;
        let entry = Entry::Started(number, incoming.pid, incoming.start_ticks);
        let incoming = crossing.incoming.insert(incoming);
        self.journal.add(&entry)?;
        incoming.join(crossing.plan)?;
        incoming.run_to_touch(patience)?;
        rollback::set_taps(crossing.process.as_fd(), &crossing.plan.taps, true)
    }

    /// Save all guests. Nothing is ended before every state is complete.
    fn save(&mut self) -> Result<(), Failure> {
        for crossing in &mut self.crossings {
            saving::begin(&mut crossing.qmp)?;
        }
        for number in 0..self.crossings.len() {
            self.step(Step::Save, Some(number))?;
            let patience = self.patience();
            let Some(crossing) = self.crossings.get_mut(number) else {
                continue;
            };
            let Some(file) = &crossing.file else { continue };
            crossing.saved = Some(saving::complete(&mut crossing.qmp, file, patience)?);
            self.kill_in(Phase::Save);
            self.make_whole(number)?;
        }
        for crossing in &self.crossings {
            let entry = Entry::Saved(crossing.number, crossing.state.clone());
            self.journal.add(&entry)?;
        }
        Ok(())
    }

    /// Save a guest again until its state is complete for its stopped vCPUs.
    fn make_whole(&mut self, number: usize) -> Result<(), Failure> {
        self.step(Step::Check, Some(number))?;
        let patience = self.patience();
        if let Some(crossing) = self.crossings.get_mut(number)
            && let Some(saved) = crossing.saved
        {
            let running = crossing.plan.running;
            let whole =
                saving::until_whole(&mut crossing.qmp, &crossing.state, saved, running, patience)?;
            crossing.saved = Some(whole);
        }
        Ok(())
    }

    /// End the old QEMUs, and let each new QEMU go on as soon as its old QEMU has ended.
    ///
    /// The old QEMUs are killed: after a completed migration their disks are inactive and flushed,
    /// and an orderly end would only take longer and remove sockets that the new QEMUs make.
    fn end(&mut self) -> Result<(), Failure> {
        for number in 0..self.crossings.len() {
            self.step(Step::End, Some(number))?;
            if let Some(crossing) = self.crossings.get(number) {
                sys::pidfd_kill(crossing.process.as_fd(), libc::SIGKILL)
                    .map_err(Failure::call("kill"))?;
            }
            self.kill_in(Phase::End);
        }
        let patience = self.patience();
        for crossing in &mut self.crossings {
            wait_for_end(&crossing.process, patience)?;
            crossing.incoming()?.go_to_kvm()?;
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<(), Failure> {
        self.step(Step::Verify, None)?;
        let mode = self.transaction.module.mode(&Tree::host());
        if mode == Some(self.transaction.to) {
            return Ok(());
        }
        let is = mode.map_or("unknown".to_owned(), |mode| mode.to_string());
        Err(Failure::Other(format!(
            "{} was loaded in {is} mode: the machine or another parameter does not allow the other",
            self.transaction.module.name
        )))
    }

    fn restore(&mut self) -> Result<(), Failure> {
        let patience = self.patience();
        for number in 0..self.crossings.len() {
            self.step(Step::Hold, Some(number))?;
            if let Some(crossing) = self.crossings.get_mut(number) {
                let incoming = crossing.incoming()?;
                incoming.at_kvm(patience)?;
                incoming.let_go(patience)?;
            }
        }
        for crossing in &mut self.crossings {
            crossing.incoming()?.started(patience)?;
        }
        self.clock.ends_as("start");
        for number in 0..self.crossings.len() {
            self.step(Step::Restore, Some(number))?;
            if let Some(crossing) = self.crossings.get_mut(number) {
                crossing.incoming()?.loaded(patience)?;
            }
            self.kill_in(Phase::Restore);
        }
        Ok(())
    }

    /// Let all guests run. No guest runs before every guest's state has been read.
    fn resume(&mut self) -> Result<Vec<GuestReport>, Failure> {
        let patience = self.patience();
        let numbers = (0..self.crossings.len()).collect();
        self.journal.add(&Entry::Resuming(numbers))?;
        let mut reports = Vec::new();
        for number in 0..self.crossings.len() {
            self.step(Step::Resume, Some(number))?;
            if let Some(crossing) = self.crossings.get_mut(number)
                && crossing.plan.running
            {
                crossing.incoming()?.resume()?;
            }
            self.kill_in(Phase::Resume);
        }
        for crossing in &mut self.crossings {
            let mut resumed = None;
            if crossing.plan.running {
                resumed = crossing.incoming()?.resumed(patience)?;
            }
            let saved = crossing.saved;
            let stopped = saved.and_then(|saved| saved.stopped);
            let lacked = saved.map_or_else(Lacked::default, |saved| saved.lacked);
            reports.push(GuestReport {
                name: crossing.plan.name.clone(),
                pid_before: crossing.plan.pid,
                pid_after: crossing.incoming()?.pid,
                pause_ms: pause_ms(stopped, resumed),
                state_bytes: saved.map_or(0, |saved| saved.bytes),
                retries: lacked.states(),
                lacked,
                retries_ms: milliseconds(saved.map_or(0, |saved| saved.retries_micros)),
            });
        }
        Ok(reports)
    }

    fn finish(&mut self) {
        self.kill_in(Phase::Finish);
        rollback::restore_expedited(self.transaction);
        for crossing in &mut self.crossings {
            if let Some(incoming) = &crossing.incoming {
                rollback::release_taps(incoming.pid, &crossing.plan.taps);
            }
            if let Some(keeper) = crossing.keeper.take() {
                keeper.end();
            }
        }
        self.crossings.clear();
    }
}

fn pause_ms(stopped: Option<i64>, resumed: Option<i64>) -> Option<f64> {
    Some(milliseconds(resumed? - stopped?))
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a pause is far below 2^52 microseconds"
)]
fn milliseconds(micros: i64) -> f64 {
    micros as f64 / 1e3
}
