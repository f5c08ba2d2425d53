//! Finishing an unfinished switch, after a failed step or after the program was killed.
//!
//! It decides by what exists (which QEMU lives), not by how far the switch had come; the journal
//! only says which processes to look for and which states are whole.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::switch::error::{Failure, SwitchError};
use crate::switch::guest::GuestPlan;
use crate::switch::incoming::{self, IncomingQemu};
use crate::switch::journal::{Entry, Journal, Transaction};
use crate::switch::module::EXPEDITED;
use crate::switch::qmp::Qmp;
use crate::switch::report::RecoveredGuest;
use crate::switch::saving::{self, control};
use crate::switch::sys;
use crate::switch::sys::wait_for_end;
use vtax_sys::kvm::PagingMode;
use vtax_sys::tree::Tree;

/// The pause between two looks for a control socket that a new QEMU is about to make.
const NAP: Duration = Duration::from_millis(20);

/// What a journal says about one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The process that keeps the guest's descriptors.
    pub keeper: Option<(i32, u64)>,
    /// The guest's last new QEMU.
    pub started: Option<(i32, u64)>,
    /// The guest's last complete state.
    pub saved: Option<PathBuf>,
    /// The new QEMU may have run the guest since then.
    pub resumed: bool,
}

/// What to do for one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The old QEMU lives: the guest goes on there.
    KeepOld,
    /// The new QEMU lives and has the guest.
    KeepNew,
    /// No QEMU has it: start one from the saved state, after ending a new QEMU that was not ready.
    Start,
    /// No QEMU has the guest, and no state is usable.
    Lost,
}

/// What a log says about each of `count` guests.
pub fn traces(entries: &[Entry], count: usize) -> Vec<Trace> {
    let mut traces = vec![Trace::default(); count];
    for entry in entries {
        match entry {
            Entry::Keeper(guest, pid, start) => {
                if let Some(trace) = traces.get_mut(*guest) {
                    trace.keeper = Some((*pid, *start));
                }
            }
            Entry::Started(guest, pid, start) => {
                if let Some(trace) = traces.get_mut(*guest) {
                    trace.started = Some((*pid, *start));
                    trace.resumed = false;
                }
            }
            Entry::Saved(guest, file) => {
                if let Some(trace) = traces.get_mut(*guest) {
                    trace.saved = Some(file.clone());
                    trace.resumed = false;
                }
            }
            Entry::Resuming(guests) => {
                for guest in guests {
                    if let Some(trace) = traces.get_mut(*guest) {
                        trace.resumed = true;
                    }
                }
            }
        }
    }
    traces
}

/// Decide for one guest by which QEMU lives.
pub fn decide(trace: &Trace, old_lives: bool, new_lives: bool) -> Decision {
    match (old_lives, new_lives) {
        (true, _) => Decision::KeepOld,
        (false, true) if trace.resumed => Decision::KeepNew,
        (false, false) if trace.resumed => Decision::Lost,
        (false, _) if trace.saved.is_some() => Decision::Start,
        (false, _) => Decision::Lost,
    }
}

/// Bring every guest back to life, and return the mode and the QEMUs that have the guests.
///
/// The mode is `target`. With `None` it is the new mode when a guest already runs in it, else the
/// old one.
///
/// Fails when a guest has neither a QEMU nor a whole state, when a QEMU ends, refuses a command or
/// does not answer in time, and when the module or the journal cannot be used.
pub fn roll_back(
    transaction: &Transaction,
    journal: &mut Journal,
    target: Option<PagingMode>,
    patience: Duration,
) -> Result<(PagingMode, Vec<RecoveredGuest>), Failure> {
    let entries = match journal.read() {
        Ok(Some((_, entries))) => entries,
        // The switch failed before the plan was written: nothing was touched.
        Ok(None) => Vec::new(),
        Err(error) => return Err(Failure::Other(error.to_string())),
    };
    let mut rollback = Rollback {
        transaction,
        journal,
        patience,
        traces: traces(&entries, transaction.guests.len()),
        decisions: Vec::new(),
        guests: Vec::new(),
    };
    rollback.look()?;
    let mode = rollback.go_on(target)?;
    let guests = rollback.guests;
    let traces = rollback.traces;
    restore_expedited(transaction);
    for (guest, (trace, now)) in transaction.guests.iter().zip(traces.iter().zip(&guests)) {
        release_taps(now.pid, &guest.taps);
        if let Some(keeper) = alive(trace.keeper) {
            let _ = sys::pidfd_kill(keeper.as_fd(), libc::SIGKILL);
        }
    }
    Ok((mode, guests))
}

struct Rollback<'a> {
    transaction: &'a Transaction,
    journal: &'a mut Journal,
    patience: Duration,
    traces: Vec<Trace>,
    decisions: Vec<Decision>,
    guests: Vec<RecoveredGuest>,
}

impl Rollback<'_> {
    /// Give guests back to old QEMUs at once, and decide for the others.
    fn look(&mut self) -> Result<(), Failure> {
        for (guest, trace) in self.transaction.guests.iter().zip(&self.traces) {
            let old = alive(Some((guest.pid, guest.start_ticks)));
            let old_lives = match &old {
                Some(process) => self.give_back(guest, process)?,
                None => false,
            };
            let new = alive(trace.started);
            let decision = decide(trace, old_lives, new.is_some());
            if let (Some(process), Decision::KeepOld | Decision::Start) = (&new, decision) {
                end(process, self.patience)?;
            }
            if decision == Decision::Lost {
                return Err(Failure::Other(format!(
                    "{} (pid {}) has ended by itself",
                    guest.name, guest.pid
                )));
            }
            self.decisions.push(decision);
        }
        Ok(())
    }

    /// True when the old QEMU has the guest; false when it was just ending.
    fn give_back(&self, guest: &GuestPlan, process: &OwnedFd) -> Result<bool, Failure> {
        match connect(guest, process, self.patience)? {
            Some(mut qmp) => {
                saving::give_back(&mut qmp, guest.running, self.patience)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn go_on(&mut self, target: Option<PagingMode>) -> Result<PagingMode, Failure> {
        let tree = Tree::host();
        let now = self.transaction.module.mode(&tree);
        let kept_new = self.decisions.contains(&Decision::KeepNew);
        let target = match target {
            Some(mode) => mode,
            None if kept_new => now.unwrap_or(self.transaction.to),
            None => self.transaction.from,
        };
        if now != Some(target) {
            self.take_back_new()?;
            self.transaction.module.unload(self.patience)?;
            self.transaction.module.load(target)?;
        }
        let mut incoming_qemus = Vec::new();
        for number in 0..self.decisions.len() {
            incoming_qemus.push(match self.decisions.get(number) {
                Some(Decision::Start) => Some(self.start(number)?),
                _ => None,
            });
        }
        for (number, incoming) in incoming_qemus.iter_mut().enumerate() {
            if let Some(incoming) = incoming {
                incoming.started(self.patience)?;
                incoming.loaded(self.patience)?;
            }
            self.finish(number, incoming.as_mut())?;
        }
        Ok(target)
    }

    /// Save the guests that run in the mode that is to be left once more.
    fn take_back_new(&mut self) -> Result<(), Failure> {
        for (number, guest) in self.transaction.guests.iter().enumerate() {
            if self.decisions.get(number) != Some(&Decision::KeepNew) {
                continue;
            }
            let Some(process) = alive(self.traces.get(number).and_then(|one| one.started)) else {
                continue;
            };
            let Some(mut qmp) = connect(guest, &process, self.patience)? else {
                return Err(Failure::Other(format!("{} ended by itself", guest.name)));
            };
            // A guest that was loaded and never ran is still as its state says.
            if runs(&mut qmp, self.patience)? {
                let state = self.journal.state_file(number, 1);
                saving::stop_and_save(&mut qmp, &state, self.patience)?;
                self.journal.add(&Entry::Saved(number, state.clone()))?;
                if let Some(trace) = self.traces.get_mut(number) {
                    trace.saved = Some(state);
                }
            }
            if let Some(decision) = self.decisions.get_mut(number) {
                *decision = Decision::Start;
            }
            end(&process, self.patience)?;
        }
        Ok(())
    }

    fn start(&mut self, number: usize) -> Result<IncomingQemu, Failure> {
        let missing = || Failure::Other("the journal names no state".into());
        let guest = self.transaction.guests.get(number).ok_or_else(missing)?;
        let trace = self.traces.get(number).ok_or_else(missing)?;
        let state = trace.saved.as_deref().ok_or_else(missing)?;
        let keeper = alive(trace.keeper);
        let source = keeper.as_ref().map(AsFd::as_fd);
        let mut incoming = IncomingQemu::make(guest, source, state, self.patience)?;
        let entry = Entry::Started(number, incoming.pid, incoming.start_ticks);
        self.journal.add(&entry)?;
        incoming.join(guest)?;
        incoming.run_to_touch(self.patience)?;
        incoming.let_go(self.patience)?;
        Ok(incoming)
    }

    fn finish(
        &mut self,
        number: usize,
        incoming: Option<&mut IncomingQemu>,
    ) -> Result<(), Failure> {
        let missing = || Failure::Other("the plan and the journal do not match".into());
        let guest = self.transaction.guests.get(number).ok_or_else(missing)?;
        let trace = self.traces.get(number).ok_or_else(missing)?;
        let (pid, found) = match (self.decisions.get(number), incoming) {
            (_, Some(incoming)) => {
                self.journal.add(&Entry::Resuming(vec![number]))?;
                if guest.running {
                    incoming.resume()?;
                    incoming.resumed(self.patience)?;
                }
                (incoming.pid, "state")
            }
            (Some(Decision::KeepNew), None) => {
                let (pid, start) = trace.started.ok_or_else(missing)?;
                let process = alive(Some((pid, start))).ok_or_else(missing)?;
                if let Some(mut qmp) = connect(guest, &process, self.patience)?
                    && guest.running
                {
                    run_on(&mut qmp, self.patience)?;
                }
                (pid, "new")
            }
            _ => (guest.pid, "old"),
        };
        self.guests.push(RecoveredGuest {
            name: guest.name.clone(),
            pid,
            found,
        });
        Ok(())
    }
}

/// Let a guest run that has been loaded.
fn run_on(qmp: &mut Qmp, patience: Duration) -> Result<(), Failure> {
    if runs(qmp, patience)? {
        return Ok(());
    }
    qmp.call("cont", json!({}), patience)
        .map(drop)
        .map_err(control)
}

fn runs(qmp: &mut Qmp, patience: Duration) -> Result<bool, Failure> {
    let status = qmp
        .call("query-status", json!({}), patience)
        .map_err(control)?;
    Ok(status.get("running").and_then(Value::as_bool) == Some(true))
}

/// The process, if it still exists with that start time.
fn alive(process: Option<(i32, u64)>) -> Option<OwnedFd> {
    let (pid, start) = process?;
    let descriptor = sys::pidfd_open(pid).ok()?;
    // Checked after opening: the number cannot be another process's at this point.
    (Tree::host().start_ticks(pid) == Some(start)).then_some(descriptor)
}

/// Connect to a QEMU's private control socket; `None`: the process has ended meanwhile.
fn connect(
    guest: &GuestPlan,
    process: &OwnedFd,
    patience: Duration,
) -> Result<Option<Qmp>, Failure> {
    let deadline = Instant::now() + patience;
    loop {
        match Qmp::connect(&guest.qmp, patience) {
            Ok(qmp) => return Ok(Some(qmp)),
            Err(error) => {
                if wait_for_end(process, Duration::ZERO).is_ok() {
                    return Ok(None);
                }
                if Instant::now() > deadline {
                    return Err(control(error));
                }
            }
        }
        // The process is ending, or has not made its socket yet.
        if wait_for_end(process, NAP).is_ok() {
            return Ok(None);
        }
    }
}

fn end(process: &OwnedFd, patience: Duration) -> Result<(), Failure> {
    // An error means that the process has ended, which is the goal.
    let _ = sys::pidfd_kill(process.as_fd(), libc::SIGKILL);
    wait_for_end(process, patience)
}

/// Ask the kernel for expedited RCU grace periods.
pub(crate) fn expedite(on: bool) -> Result<(), Failure> {
    let path = Tree::host().path(EXPEDITED);
    if !path.exists() {
        return Ok(());
    }
    fs::write(&path, if on { "1" } else { "0" }).map_err(Failure::file(path))
}

/// Restore the setting of RCU grace periods.
pub(crate) fn restore_expedited(transaction: &Transaction) {
    if let Some(text) = &transaction.rcu_expedited {
        // A failure costs speed elsewhere and nothing else; the guests matter more.
        let _ = fs::write(Tree::host().path(EXPEDITED), text);
    }
}

/// Choose whether tap devices outlive their last user.
pub(crate) fn set_taps(
    process: BorrowedFd<'_>,
    taps: &[(String, i32)],
    stay: bool,
) -> Result<(), Failure> {
    for (name, number) in taps {
        let copy = sys::pidfd_getfd(process, *number)
            .map_err(Failure::call(format!("copy the descriptor of {name}")))?;
        sys::set_tap_persistent(copy.as_fd(), stay)
            .map_err(Failure::call(format!("keep the tap device {name}")))?;
    }
    Ok(())
}

/// Let tap devices vanish again with their last user, the process `pid`.
pub(crate) fn release_taps(pid: i32, taps: &[(String, i32)]) {
    let Ok(process) = sys::pidfd_open(pid) else {
        return;
    };
    if taps.is_empty() {
        return;
    }
    for one in Tree::host().descriptors(pid) {
        if one.target != "/dev/net/tun" {
            continue;
        }
        let Ok(copy) = sys::pidfd_getfd(process.as_fd(), one.number) else {
            continue;
        };
        let ours =
            sys::tap(copy.as_fd()).is_ok_and(|(name, _)| taps.iter().any(|(tap, _)| *tap == name));
        if ours {
            // A device that stays too long does no harm.
            let _ = sys::set_tap_persistent(copy.as_fd(), false);
        }
    }
}

/// The error after a failed step, depending on how going back went.
pub(crate) fn undone(
    transaction: &Transaction,
    journal: Journal,
    step: String,
    failure: &Failure,
    outcome: Result<(PagingMode, Vec<RecoveredGuest>), Failure>,
) -> SwitchError {
    let reason = failure.to_string();
    let entries = journal.read().ok().flatten().map(|(_, entries)| entries);
    let traces = traces(&entries.unwrap_or_default(), transaction.guests.len());
    let ended = outcome.and_then(|(mode, _)| journal.end().map(|()| mode));
    match ended {
        Ok(mode) => SwitchError::Undone { step, reason, mode },
        Err(undo) => SwitchError::Stranded {
            step,
            reason,
            undo: undo.to_string(),
            by_hand: by_hand(transaction, &traces),
        },
    }
}

/// Shell commands that resume the guests without vtax.
pub(crate) fn by_hand(transaction: &Transaction, traces: &[Trace]) -> String {
    let commands = transaction
        .guests
        .iter()
        .enumerate()
        .map(|(number, guest)| {
            let trace = traces.get(number);
            let state = trace.and_then(|trace| trace.saved.clone());
            let keeper = trace.and_then(|trace| trace.keeper).map(|(pid, _)| pid);
            incoming::by_hand(guest, &state.unwrap_or_default(), keeper)
        });
    commands.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
