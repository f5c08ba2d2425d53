//! What ptrace does for counting: it takes the vDSO away from programs, so that their readings of
//! clocks are system calls, and counts without privilege. Then the program stops twice at each
//! call, which disturbs it; the files are those of a recording, without rows.

mod counts;
mod ptrace_unsafe;
mod tracer;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2, read, write};
use serde::Serialize;
use vtax_sys::calls::children::fork_and_run;
use vtax_sys::confine::{Confinement, Limits};
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::record::clock::Pair;
use crate::record::files::Folder;
use crate::record::options::RecordOptions;
use crate::record::plan::Unavailable;
use crate::record::sources::{Unit, calls};
use crate::record::summary;
use crate::record::target::{self, Target};

use counts::Counts;
use tracer::Tracer;

/// `record.json` of a traced command.
#[derive(Debug, Serialize)]
pub struct Traced {
    format: u32,
    counted_by: &'static str,
    clock: &'static str,
    /// Both clocks at the start and at the end.
    clocks: [Pair; 2],
    end: summary::End,
}

#[derive(Debug, Serialize)]
struct Events<'a> {
    columns: Vec<Column<'a>>,
    unavailable: Vec<Unavailable>,
}

/// A column without rows; `sum` is that of the whole program.
#[derive(Debug, Serialize)]
struct Column<'a> {
    name: &'a str,
    about: &'a str,
    source: &'a str,
    unit: Unit,
    sum: u64,
    after_last_row: u64,
}

/// Count the command of the options.
///
/// Fails when the command cannot begin or be traced, when one of its programs is setuid without
/// effect, and when the folder holds a recording already or cannot be written.
pub fn count(options: &RecordOptions) -> Result<Traced, Error> {
    let Target::Command(argv) = &options.target else {
        return Err(Error::misuse(
            "--by-ptrace",
            "no command",
            "name one behind --",
        ));
    };
    let folder = Folder::create(&options.out)?;
    let limits = Limits {
        processes: options.processes,
        ..Limits::default()
    };
    // Dropped last, so that what the command left is ended on every path out.
    let (confinement, _) = Confinement::new(&Tree::host(), limits);
    let held = target::hold(argv, &confinement)?;
    target::rest(&held);
    let process = held.process;
    let mut tracer = Tracer::seize(process, Some(Counts::new())).map_err(|errno| {
        let remedy = "allow it (kernel.yama.ptrace_scope, seccomp)";
        Error::failure("ptrace", errno.desc(), remedy)
    })?;
    let begin = Pair::now();
    let released = held
        .release()
        .map_err(|errno| target::refused(argv, errno))?;
    let end = tracer.run(process)?;
    let clocks = [begin, Pair::now()];
    if let Some(errno) = released.refusal() {
        return Err(target::refused(argv, errno));
    }
    let kept_vdso = tracer.kept_vdso;
    let counts = tracer.counted().unwrap_or_else(Counts::new);
    folder.describe("events.json", &events(&counts, kept_vdso))?;
    let described = Traced {
        format: 1,
        counted_by: "ptrace",
        clock: "CLOCK_MONOTONIC",
        clocks,
        end: summary::End {
            reason: "process",
            monotonic_ns: clocks[1].monotonic_ns,
            command: Some(end),
        },
    };
    folder.describe("record.json", &described)?;
    Ok(described)
}

fn events(counts: &Counts, kept_vdso: bool) -> Events<'_> {
    let kept = || Unavailable {
        name: calls::CLOCK_EVENT.into(),
        reason: "a program's memory cannot be read, so it kept its vDSO".into(),
    };
    let counted = counts.events.iter().zip(&counts.sums);
    let counted = counted.filter(|(event, _)| !kept_vdso || event.name != calls::CLOCK_EVENT);
    let columns = counted.map(|(event, sum)| Column {
        name: &event.name,
        about: &event.about,
        source: event.layer(),
        unit: event.unit,
        sum: *sum,
        after_last_row: 0,
    });
    Events {
        columns: columns.collect(),
        unavailable: kept_vdso.then(kept).into_iter().collect(),
    }
}

/// A process that takes the vDSO away from a command's programs, beside what counts by other means.
#[derive(Debug)]
pub struct Taker(Option<Pid>);

impl Taker {
    /// Begin, for a process that is held before its exec.
    ///
    /// Fails with the errno of a system call; EPERM when the process cannot be traced.
    pub fn begin(process: Pid) -> Result<Self, Errno> {
        let (ready, tell) = pipe2(OFlag::O_CLOEXEC)?;
        // Not a thread: the recorder's own waiting for the command would take stops away from it.
        let taker = fork_and_run(|| {
            let Ok(mut tracer) = Tracer::seize(process, None) else {
                return 1;
            };
            let told = write(&tell, &[0]).is_ok();
            u8::from(!told || tracer.run(process).is_err())
        })?;
        drop(tell);
        let this = Self(Some(taker));
        match read(&ready, &mut [0])? {
            0 => Err(Errno::EPERM),
            _ => Ok(this),
        }
    }

    /// Wait until the end of the process is known to its parent.
    pub fn wait(mut self) {
        if let Some(taker) = self.0.take() {
            let _ = waitpid(taker, None);
        }
    }
}

impl Drop for Taker {
    /// Ends what it traces too.
    fn drop(&mut self) {
        if let Some(taker) = self.0 {
            let _ = kill(taker, Signal::SIGKILL);
            let _ = waitpid(taker, None);
        }
    }
}
