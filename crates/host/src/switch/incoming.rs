//! The new QEMU of a guest: made from the old one's command line and descriptors.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::json;

use crate::switch::arguments::{Additions, Arguments};
use crate::switch::error::Failure;
use crate::switch::guest::GuestPlan;
use crate::switch::hold::Held;
use crate::switch::qmp::Qmp;
use crate::switch::saving::{self, control};
use crate::switch::sys::{self, Child};
use vtax_sys::tree::Tree;

/// A new QEMU, from its making to the guest's resumption.
#[derive(Debug)]
pub struct IncomingQemu {
    pub pid: i32,
    pub start_ticks: u64,
    held: Option<Held>,
    qmp: Qmp,
    incoming: u64,
}

impl IncomingQemu {
    /// Make the new QEMU. `source` has the guest's descriptors at their numbers: it is the old QEMU
    /// or the keeper.
    ///
    /// Fails when there is no `source` or it lacks a descriptor, when the state cannot be opened,
    /// or when the process cannot be made and traced in time.
    pub fn make(
        plan: &GuestPlan,
        source: Option<BorrowedFd<'_>>,
        state: &Path,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Failure::Other(format!("socketpair: {error}")))?;
        let state = File::open(state).map_err(Failure::file(state))?;
        let numbers = numbers(plan);
        let fresh = plan.fresh.iter().map(|(number, _)| number);
        let last = numbers.iter().chain(fresh).max();
        let above = last.map_or(3, |number| number + 1).max(3);
        let mut descriptors = copies(&numbers, source)?;
        for (number, path) in &plan.fresh {
            descriptors.push((opened(path)?, *number));
        }
        descriptors.push((OwnedFd::from(theirs), above));
        descriptors.push((OwnedFd::from(state), above + 1));
        let child = child(plan, above, raise(descriptors, above + 2)?)?;
        let mut qmp = Qmp::over(ours).map_err(control)?;
        // The commands wait in the socket until QEMU is up, so that QEMU never waits for this
        // program.
        qmp.send("migrate-set-capabilities", saving::capabilities(true))
            .map_err(control)?;
        let uri = format!("fd:{}", above + 1);
        let incoming = qmp
            .send("migrate-incoming", json!({"uri": uri}))
            .map_err(control)?;
        let held = Held::make(child, patience)?;
        let start_ticks = Tree::host()
            .start_ticks(held.pid)
            .ok_or_else(|| Failure::Other("the new QEMU ended".into()))?;
        Ok(Self {
            pid: held.pid,
            start_ticks,
            held: Some(held),
            qmp,
            incoming,
        })
    }

    /// Join the old QEMU's control groups, CPUs and rank among victims of low memory.
    ///
    /// Fails when the kernel refuses a control group, the CPUs or the rank.
    pub fn join(&self, plan: &GuestPlan) -> Result<(), Failure> {
        for file in &plan.cgroups {
            write(file, &self.pid.to_string())?;
        }
        let (old, new) = (Pid::from_raw(plan.pid), Pid::from_raw(self.pid));
        // If the old QEMU has gone, the new one stays where the kernel put it.
        if let Ok(cpus) = sched_getaffinity(old) {
            sched_setaffinity(new, &cpus).map_err(Failure::call("sched_setaffinity"))?;
        } else {
            let _: Result<CpuSet, _> = sched_getaffinity(new);
        }
        let score = Tree::host().text(&format!("/proc/{}/oom_score_adj", plan.pid));
        if let Some(score) = score {
            let file = format!("/proc/{}/oom_score_adj", self.pid);
            write(Path::new(&file), &score)?;
        }
        Ok(())
    }

    fn held(&mut self) -> Result<&mut Held, Failure> {
        let held = self.held.as_mut();
        held.ok_or_else(|| Failure::Other("the new QEMU was let go already".into()))
    }

    /// Run the new QEMU until it would touch what it shares with the running guest.
    ///
    /// Fails when the new QEMU ends, does not come that far in time, or was let go already.
    pub fn run_to_touch(&mut self, patience: Duration) -> Result<(), Failure> {
        self.held()?.run_to_touch(patience).map(drop)
    }

    /// Let the new QEMU go on to `/dev/kvm`, without waiting for it.
    ///
    /// Fails when an earlier step failed, or when the new QEMU was let go already.
    pub fn go_to_kvm(&mut self) -> Result<(), Failure> {
        self.held()?.go_to_kvm()
    }

    /// Wait until the new QEMU stops before `/dev/kvm`.
    ///
    /// Fails when the new QEMU ends, does not come that far in time, or was let go already.
    pub fn at_kvm(&mut self, patience: Duration) -> Result<(), Failure> {
        self.held()?.at_kvm(patience)
    }

    /// Let the new QEMU open `/dev/kvm` and read the state.
    ///
    /// Fails when the new QEMU has ended, or when it cannot be detached in time. A second call does
    /// nothing.
    pub fn let_go(&mut self, patience: Duration) -> Result<(), Failure> {
        match self.held.take() {
            Some(held) => held.let_go(patience),
            None => Ok(()),
        }
    }

    /// Wait until its machine is made and it begins to read the state.
    ///
    /// Fails when the new QEMU refuses the state, ends, or does not answer in time.
    pub fn started(&mut self, patience: Duration) -> Result<(), Failure> {
        let begun = self.qmp.wait(self.incoming, patience);
        begun.map(drop).map_err(control)
    }

    /// Wait until the new QEMU has read the state.
    ///
    /// Fails when the new QEMU cannot read the state, ends, or is not done in time.
    pub fn loaded(&mut self, patience: Duration) -> Result<(), Failure> {
        let end = self
            .qmp
            .event("the end of restoring", patience, saving::has_ended)
            .map_err(control)?;
        if saving::is_completed(&end) {
            Ok(())
        } else {
            Err(Failure::Other(
                "the new QEMU could not read the state".into(),
            ))
        }
    }

    /// Let the guest run, without waiting for it.
    ///
    /// Fails when the new QEMU's socket does not take the command.
    pub fn resume(&mut self) -> Result<(), Failure> {
        self.qmp.send("cont", json!({})).map(drop).map_err(control)
    }

    /// Wait until the guest runs; returns QEMU's time of that moment, in microseconds.
    ///
    /// Fails when the new QEMU ends, or when the guest does not run in time.
    pub fn resumed(&mut self, patience: Duration) -> Result<Option<i64>, Failure> {
        let event = self
            .qmp
            .event("RESUME", patience, |event| event.name == "RESUME")
            .map_err(control)?;
        Ok(event.micros)
    }
}

/// A process that holds a guest's descriptors in case this program is killed when the guest has no
/// QEMU left: memory without a file would vanish.
#[derive(Debug)]
pub struct Keeper {
    pub pid: i32,
    pub start_ticks: u64,
    process: OwnedFd,
}

impl Keeper {
    /// Make the keeper; `source` is the old QEMU.
    ///
    /// Fails when a descriptor cannot be copied from the old QEMU, or when the process cannot be
    /// made.
    pub fn make(plan: &GuestPlan, source: BorrowedFd<'_>) -> Result<Self, Failure> {
        let numbers = numbers(plan);
        let above = numbers.last().map_or(3, |number| number + 1).max(3);
        let descriptors = raise(copies(&numbers, Some(source))?, above)?;
        let mut child = child(plan, above, descriptors)?;
        child.program = None;
        child.user = (0, 0);
        child.groups = Vec::new();
        let waiting = sys::make(&child).map_err(Failure::call("fork"))?;
        let pid = waiting.pid;
        let process = sys::pidfd_open(pid).map_err(Failure::call("pidfd_open"))?;
        waiting.go().map_err(Failure::call("its gate"))?;
        let start_ticks = Tree::host()
            .start_ticks(pid)
            .ok_or_else(|| Failure::Other("the keeper ended".into()))?;
        Ok(Self {
            pid,
            start_ticks,
            process,
        })
    }

    /// End the keeper.
    pub fn end(self) {
        // An error means that the keeper has ended, which is the goal.
        let _ = sys::pidfd_kill(self.process.as_fd(), libc::SIGKILL);
    }
}

/// The numbers of all descriptors that are handed on, ascending.
fn numbers(plan: &GuestPlan) -> Vec<i32> {
    let memory = plan.memory.iter().map(|(_, number)| *number);
    let mut numbers: Vec<i32> = plan.inherited.iter().copied().chain(memory).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn copies(numbers: &[i32], source: Option<BorrowedFd<'_>>) -> Result<Vec<(OwnedFd, i32)>, Failure> {
    let Some(source) = source else {
        return Err(Failure::Other(
            "no process is left that has the guest's descriptors".into(),
        ));
    };
    let copy = |number: &i32| {
        sys::pidfd_getfd(source, *number)
            .map(|copy| (copy, *number))
            .map_err(Failure::call(format!("copy descriptor {number}")))
    };
    numbers.iter().map(copy).collect()
}

fn opened(path: &Path) -> Result<OwnedFd, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(Failure::file(path))
}

/// Move the sources above all targets, so that no target overwrites a source.
fn raise(descriptors: Vec<(OwnedFd, i32)>, above: i32) -> Result<Vec<(OwnedFd, i32)>, Failure> {
    let raised = descriptors.into_iter().map(|(from, to)| {
        let number = fcntl(&from, FcntlArg::F_DUPFD_CLOEXEC(above))
            .map_err(Failure::call("copy a descriptor"))?;
        Ok((sys::own(number), to))
    });
    raised.collect()
}

fn child(
    plan: &GuestPlan,
    monitor: i32,
    descriptors: Vec<(OwnedFd, i32)>,
) -> Result<Child, Failure> {
    let given = plan.command_line.get(1..).unwrap_or_default();
    let arguments = Arguments::parse(given).incoming(&Additions {
        monitor: Some(monitor),
        memory: &plan.memory,
        sets: &plan.sets,
    });
    let mut words: Vec<String> = plan.command_line.iter().take(1).cloned().collect();
    words.extend(arguments.words());
    Ok(Child {
        program: Some(text(&plan.program.to_string_lossy())?),
        arguments: words
            .iter()
            .map(|word| text(word))
            .collect::<Result<_, _>>()?,
        environment: plan
            .environment
            .iter()
            .map(|word| text(word))
            .collect::<Result<_, _>>()?,
        folder: text(&plan.folder.to_string_lossy())?,
        descriptors,
        user: plan.user,
        groups: plan.groups.clone(),
        limits: plan.limits.clone(),
        mask: plan.mask,
    })
}

/// A command that resumes a guest by hand from its saved state.
///
/// `keeper` is the process that has the guest's descriptors; the command cannot take sockets from
/// it.
pub fn by_hand(plan: &GuestPlan, state: &Path, keeper: Option<i32>) -> String {
    let given = plan.command_line.get(1..).unwrap_or_default();
    let arguments = Arguments::parse(given).incoming(&Additions {
        monitor: None,
        memory: &plan.memory,
        sets: &plan.sets,
    });
    let program = plan.program.to_string_lossy().into_owned();
    let words = std::iter::once(program).chain(arguments.words());
    let words: Vec<String> = words.map(|word| quoted(&word)).collect();
    let kept = keeper.into_iter().flat_map(|pid| {
        let numbers = plan.memory.iter().map(|(_, number)| *number);
        numbers.map(move |number| format!(" {number}<>/proc/{pid}/fd/{number}"))
    });
    let free = numbers(plan).last().map_or(9, |number| (number + 1).max(9));
    format!(
        "bash: (cd {} && {}{} {free}<{}) # then over {}: migrate-set-capabilities x-ignore-shared, \
         migrate-incoming fd:{free}, cont",
        quoted(&plan.folder.to_string_lossy()),
        words.join(" "),
        kept.collect::<String>(),
        quoted(&state.to_string_lossy()),
        plan.qmp.display(),
    )
}

fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:@%+".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn text(word: &str) -> Result<CString, Failure> {
    CString::new(word).map_err(|_| Failure::Other("a word with a zero byte".into()))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Failure::file(path))
}
