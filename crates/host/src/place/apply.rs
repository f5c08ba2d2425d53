//! Puts threads and interrupts on the CPUs of a plan, all or none of them, and back.

use std::path::Path;

use serde::Serialize;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::cpus::{cpuset, online, written};
use crate::place::domain::{Finder, Member, thread_folder};
use crate::place::host::host;
use crate::place::journal::{self, Affinity, Before, Restored, Setting};
use crate::place::plan::{Plan, PlannedThread};

pub(crate) const JOURNAL: &str = "journal.json";
const NEW_PLAN: &str = "make a new plan";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moved {
    pub pid: i32,
    pub tid: i32,
    pub name: String,
    /// The CPUs that it could run on before.
    pub before: String,
    /// The CPUs that it can run on after the move.
    pub cpus: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MovedInterrupt {
    pub number: u32,
    /// The CPUs that could answer it before.
    pub before: String,
    /// The CPUs that can answer it after the move.
    pub cpus: String,
}

/// A thread of the plan that does not exist any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    pub pid: i32,
    pub tid: i32,
    /// Its name in the plan.
    pub name: String,
    /// Why it was skipped.
    pub reason: &'static str,
}

/// What a plan changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Threads that were moved, or were already in their place.
    pub threads: Vec<Moved>,
    /// Interrupts that were moved, or were already in their place.
    pub interrupts: Vec<MovedInterrupt>,
    pub skipped: Vec<Skipped>,
}

/// Put all threads and interrupts of a plan on its CPUs. A journal in `state` first records where
/// they were.
///
/// Fails before anything moves when the plan is not for this machine in its current state, or
/// another plan is in force. Fails when the kernel refuses a move, after all other moves were
/// undone.
pub fn apply(tree: &Tree, plan: &Plan, state: &Path) -> Result<Applied, Error> {
    let path = state.join(JOURNAL);
    let applied = check(tree, plan)?;
    let before = before(tree, &applied, plan)?;
    let _lock = journal::lock(state)?;
    if !journal::begin(&path, &before)? {
        return Err(in_force(tree, &path, "plan"));
    }
    let moved = carry_out(tree, applied, &before);
    match moved {
        Ok(applied) => Ok(applied),
        Err(reason) => {
            let restored = before.restore(tree);
            if let Some(left) = restored.failed.first() {
                let reason = format!("{reason}; undoing it failed too: {left}");
                return Err(Error::failure(
                    "plan",
                    reason,
                    "run `vtax place apply --undo`",
                ));
            }
            journal::remove(&path);
            Err(Error::failure(
                "plan",
                format!("{reason}; everything was undone"),
                NEW_PLAN,
            ))
        }
    }
}

/// Put everything back where it was before the current plan.
///
/// Fails when no plan is in force, or when the kernel refuses: the journal then stays.
pub fn undo(tree: &Tree, state: &Path) -> Result<Restored, Error> {
    let path = state.join(JOURNAL);
    let nothing = || Error::misuse("undo", "no plan is in force", "there is nothing to do");
    // A caller that only asks makes no folder.
    let is_there = path.try_exists();
    if !is_there.map_err(|error| journal::failed(&path, &error))? {
        return Err(nothing());
    }
    let _lock = journal::lock(state)?;
    let before = journal::read(&path)?.ok_or_else(nothing)?;
    if before.living_owner(tree).is_some() {
        return Err(in_force(tree, &path, "undo"));
    }
    let restored = before.restore(tree);
    if let Some(reason) = restored.failed.first() {
        return Err(Error::failure("undo", reason, "fix this and run it again"));
    }
    journal::remove(&path);
    Ok(restored)
}

/// Put back what a killed `watch` had moved; true when there was one.
pub(crate) fn recover(tree: &Tree, state: &Path) -> bool {
    let before = journal::read(&state.join(JOURNAL)).ok().flatten();
    let killed = before.is_some_and(|one| one.owner.is_some() && one.living_owner(tree).is_none());
    killed && undo(tree, state).is_ok()
}

/// The error that `thing` has to wait, with the owner of the existing journal.
pub(crate) fn in_force(tree: &Tree, path: &Path, thing: &str) -> Error {
    let before = journal::read(path).ok().flatten();
    if let Some(pid) = before.as_ref().and_then(|before| before.living_owner(tree)) {
        let reason = format!("`vtax place watch` runs as process {pid}");
        return Error::misuse(thing, reason, "end it: it takes all back by itself");
    }
    let reason = "another plan, or what a killed watch moved, is in force";
    Error::misuse(thing, reason, "run `vtax place apply --undo` first")
}

/// The moves of the plan, if all of them are possible.
fn check(tree: &Tree, plan: &Plan) -> Result<Applied, Error> {
    let own = host(tree);
    if plan.host != own {
        let reason = format!("it is for the host {:?}, and this is {own}", plan.host);
        return Err(Error::misuse(
            "plan",
            reason,
            "make the plan on this machine",
        ));
    }
    let online = online(tree);
    let members = Finder::default().find(tree, &[]);
    let mut applied = Applied::default();
    for thread in &plan.threads {
        let folder = thread_folder(thread.pid, thread.tid);
        let now = Affinity::read(tree, thread.pid, thread.tid)
            .filter(|now| now.start_ticks == thread.start_ticks);
        let Some(now) = now else {
            applied.skipped.push(skipped(thread));
            continue;
        };
        let thing = format!("thread {} ({:?})", thread.tid, thread.name);
        check_member(&thing, thread, &members)?;
        check_cpus(&thing, &thread.cpus, &online)?;
        check_cpuset(tree, &thing, &folder, &thread.cpus)?;
        applied.threads.push(Moved {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.clone(),
            before: now.cpus,
            cpus: written(&thread.cpus),
        });
    }
    for interrupt in &plan.interrupts {
        let thing = format!("interrupt {}", interrupt.number);
        check_cpus(&thing, &interrupt.cpus, &online)?;
        let before = tree
            .text(&interrupt_file(interrupt.number))
            .ok_or_else(|| Error::misuse(&thing, "this machine has no such interrupt", NEW_PLAN))?;
        applied.interrupts.push(MovedInterrupt {
            number: interrupt.number,
            before,
            cpus: written(&interrupt.cpus),
        });
    }
    Ok(applied)
}

fn skipped(thread: &PlannedThread) -> Skipped {
    Skipped {
        pid: thread.pid,
        tid: thread.tid,
        name: thread.name.clone(),
        reason: "it has ended",
    }
}

fn interrupt_file(number: u32) -> String {
    format!("/proc/irq/{number}/smp_affinity_list")
}

fn check_member(thing: &str, thread: &PlannedThread, members: &[Member]) -> Result<(), Error> {
    let same = |one: &&Member| one.pid == thread.pid && one.tid == thread.tid;
    let Some(member) = members.iter().find(same) else {
        let reason = "it is no part of virtualization";
        return Err(Error::misuse(thing, reason, "leave it out"));
    };
    if member.task.bound {
        let reason = "the kernel keeps it on its CPU";
        return Err(Error::misuse(thing, reason, "leave it out"));
    }
    Ok(())
}

pub(crate) fn check_cpus(thing: &str, cpus: &[usize], online: &[usize]) -> Result<(), Error> {
    match cpus.iter().find(|cpu| !online.contains(cpu)) {
        Some(cpu) => {
            let reason = format!("CPU {cpu} is not online");
            Err(Error::misuse(thing, reason, NEW_PLAN))
        }
        None => Ok(()),
    }
}

pub(crate) fn check_cpuset(
    tree: &Tree,
    thing: &str,
    folder: &str,
    cpus: &[usize],
) -> Result<(), Error> {
    let Some((group, allowed)) = cpuset(tree, folder) else {
        return Ok(());
    };
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => {
            let reason = format!("CPU {cpu} is outside its cpuset ({group})");
            Err(Error::misuse(
                thing,
                reason,
                "widen the cpuset, or make a new plan",
            ))
        }
        None => Ok(()),
    }
}

fn before(tree: &Tree, applied: &Applied, plan: &Plan) -> Result<Before, Error> {
    let start = |tid: i32| plan.threads.iter().find(|one| one.tid == tid);
    let threads = applied.threads.iter().filter_map(|one| {
        Some(Affinity {
            pid: one.pid,
            tid: one.tid,
            start_ticks: start(one.tid)?.start_ticks,
            cpus: one.before.clone(),
            to: Some(one.cpus.clone()),
        })
    });
    let settings = applied.interrupts.iter().map(|one| Setting {
        path: interrupt_file(one.number),
        text: one.before.clone(),
    });
    let before = Before {
        threads: threads.collect(),
        settings: settings.collect(),
        ..Before::now(tree)
    };
    if before.threads.is_empty() && before.settings.is_empty() {
        return Err(Error::failure(
            "plan",
            "all of its threads have ended",
            NEW_PLAN,
        ));
    }
    Ok(before)
}

fn carry_out(tree: &Tree, mut applied: Applied, before: &Before) -> Result<Applied, String> {
    let mut ended = Vec::new();
    for (one, thread) in applied.threads.iter().zip(&before.threads) {
        if !thread.put(tree, &one.cpus)? {
            ended.push(one.tid);
        }
    }
    for (one, setting) in applied.interrupts.iter().zip(&before.settings) {
        journal::set(tree, &setting.path, &one.cpus)?;
    }
    let (gone, there) = applied
        .threads
        .into_iter()
        .partition(|one| ended.contains(&one.tid));
    applied.threads = there;
    let gone: Vec<Moved> = gone;
    applied.skipped.extend(gone.into_iter().map(|one| Skipped {
        pid: one.pid,
        tid: one.tid,
        name: one.name,
        reason: "it has ended",
    }));
    Ok(applied)
}
