//! What holds a recording open: programs, links, perf events.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::clock::Pair;
use crate::error::Error;
use crate::interval::Interval;
use crate::online::Cpus;
use crate::perf::{self, Reading, Request, Scope};
use crate::plan::Columns;
use crate::program::{Overflow, Programs};
use crate::reference::Reference;
use crate::session::Options;
use crate::sources::counters::scarcity;
use crate::sys;
use crate::target::{self, Gated, Target};
use crate::watch::Watch;

/// The machine that is recorded on.
pub const ROOT: &str = "/";

/// Open one of the perf events that rows read.
fn open_counter(
    columns: &Columns,
    index: usize,
    cpu: u32,
    leader: Option<BorrowedFd<'_>>,
    pinned: bool,
) -> Result<OwnedFd, Errno> {
    let column = columns.perf.get(index).ok_or(Errno::EINVAL)?;
    let request = Request {
        kind: column.kind,
        config: column.config,
        period: None,
        exclude: column.exclude,
        pinned,
    };
    perf::open(request, Scope::Cpu(cpu), leader)
}

/// The error of a system call.
pub fn system(call: &str, errno: Errno) -> Error {
    Error::failure(call, errno.desc(), "try again")
}

/// What holds the recording open: programs, links, events.
pub struct Attached {
    /// The programs.
    pub programs: Programs,
    /// Hardware counters that were free for the columns.
    pub free_counters: Option<usize>,
    request: Request,
    references: Vec<(Scope, Overflow)>,
    counters: Vec<Counter>,
    /// Columns whose events count together.
    groups: Vec<Vec<usize>>,
    known: BTreeSet<i32>,
    measuring: Option<OwnedFd>,
}

/// A perf event that the rows of a CPU read.
#[derive(Debug)]
struct Counter {
    cpu: u32,
    column: usize,
    event: OwnedFd,
}

/// How the recording began.
pub struct Begin {
    /// The clocks.
    pub clock: Pair,
    /// The command that was started.
    pub child: Option<Pid>,
}

impl Attached {
    /// Nothing is attached yet.
    pub fn new(programs: Programs, reference: Reference, interval: Interval) -> Self {
        Self {
            programs,
            request: reference.request(interval),
            references: Vec::new(),
            counters: Vec::new(),
            groups: Vec::new(),
            known: BTreeSet::new(),
            measuring: None,
            free_counters: None,
        }
    }

    /// Attach everything, then let the reference event count, then the command begin.
    pub fn begin(
        &mut self,
        options: &Options,
        cpus: &Cpus,
        columns: &Columns,
        watch: &mut Watch,
    ) -> Result<Begin, Error> {
        if options.statistics {
            let statistics = sys::enable_program_statistics();
            self.measuring = Some(statistics.map_err(|errno| system("bpf statistics", errno))?);
        }
        self.open_counters(cpus, columns)?;
        let clock = Pair::now();
        self.programs.attach_counters()?;
        let child = self.open_references(options, cpus, watch)?;
        Ok(Begin { clock, child })
    }

    /// Hardware events in groups that fit the free counters, software events one by one.
    fn open_counters(&mut self, cpus: &Cpus, columns: &Columns) -> Result<(), Error> {
        let failed = |errno| system("perf event", errno);
        let hardware: Vec<usize> = columns.hardware().collect();
        let first = cpus.online.first().copied().unwrap_or(0);
        let free = scarcity::free(hardware.len(), |number| {
            let column = hardware.get(number).ok_or(Errno::EINVAL)?;
            let event = open_counter(columns, *column, first, None, true)?;
            sys::perf_event_enable(event.as_fd(), true)?;
            Ok(event)
        })
        .map_err(failed)?;
        self.free_counters = (!hardware.is_empty()).then_some(free);
        self.groups = scarcity::groups(hardware.len(), free)
            .into_iter()
            .filter_map(|group| hardware.get(group).map(<[usize]>::to_vec))
            .chain(columns.software().map(|column| vec![column]))
            .collect();
        for cpu in &cpus.online {
            self.open_groups(columns, *cpu)?;
        }
        Ok(())
    }

    fn open_groups(&mut self, columns: &Columns, cpu: u32) -> Result<(), Error> {
        for group in self.groups.clone() {
            self.open_group(columns, &group, cpu)?;
        }
        Ok(())
    }

    /// A CPU has gone: returns the last readings of its reference event and, by their columns, of
    /// the events that rows read.
    pub fn cpu_left(&mut self, cpu: u32) -> (Reading, Vec<(usize, Reading)>) {
        let mut reference = Reading::default();
        self.references.retain(|(scope, event)| {
            let stays = *scope != Scope::Cpu(cpu);
            if !stays {
                reference = perf::read(event).ok().flatten().unwrap_or_default();
            }
            stays
        });
        let (gone, stay) = std::mem::take(&mut self.counters)
            .into_iter()
            .partition::<Vec<_>, _>(|counter| counter.cpu == cpu);
        self.counters = stay;
        let readings = gone.iter().filter_map(|counter| {
            let reading = perf::read(&counter.event).ok()??;
            Some((counter.column, reading))
        });
        (reference, readings.collect())
    }

    /// A CPU has come: let its events count. `whole`: not only targets are recorded.
    pub fn cpu_came(&mut self, columns: &Columns, cpu: u32, whole: bool) -> Result<(), Error> {
        self.open_groups(columns, cpu)?;
        if whole {
            self.open_reference(Scope::Cpu(cpu))?;
        }
        Ok(())
    }

    fn open_group(&mut self, columns: &Columns, group: &[usize], cpu: u32) -> Result<(), Error> {
        let failed = |errno| system("perf event", errno);
        let mut opened: Vec<OwnedFd> = Vec::with_capacity(group.len());
        for column in group {
            let leader = opened.first().map(OwnedFd::as_fd);
            let event = open_counter(columns, *column, cpu, leader, false).map_err(failed)?;
            self.programs.put_perf_event(cpu, *column, event.as_fd())?;
            opened.push(event);
        }
        if let Some(leader) = opened.first() {
            sys::perf_event_enable(leader.as_fd(), true).map_err(failed)?;
        }
        let opened = group.iter().zip(opened);
        self.counters.extend(opened.map(|(column, event)| Counter {
            cpu,
            column: *column,
            event,
        }));
        Ok(())
    }

    fn open_references(
        &mut self,
        options: &Options,
        cpus: &Cpus,
        watch: &mut Watch,
    ) -> Result<Option<Pid>, Error> {
        match &options.target {
            Target::System => {
                for cpu in &cpus.online {
                    self.open_reference(Scope::Cpu(*cpu))?;
                }
                Ok(None)
            }
            Target::Process(process) => {
                self.follow(*process)?;
                self.follow_descendants(*process)?;
                self.watch_process(watch, Pid::from_raw(*process))?;
                Ok(None)
            }
            Target::Machines(process) => {
                self.follow_machines(*process)?;
                if let Some(process) = process {
                    self.watch_process(watch, Pid::from_raw(*process))?;
                }
                Ok(None)
            }
            Target::Command(argv) => {
                let gated = Gated::start(argv)?;
                self.follow(gated.process.as_raw())?;
                let child = gated.process;
                self.watch_process(watch, child)?;
                gated.go()?;
                Ok(Some(child))
            }
        }
    }

    #[allow(clippy::unused_self, reason = "reads as one of the steps")]
    fn watch_process(&self, watch: &mut Watch, process: Pid) -> Result<(), Error> {
        let descriptor = sys::pidfd_open(process).map_err(|errno| gone(process.as_raw(), errno))?;
        watch.process(descriptor);
        Ok(())
    }

    /// Count a process and all its threads from now on.
    fn follow(&mut self, process: i32) -> Result<(), Error> {
        let threads = target::threads(Path::new(ROOT), process);
        if threads.is_empty() {
            return Err(gone(process, Errno::ESRCH));
        }
        let number = u32::try_from(process).unwrap_or(0);
        self.programs.put_target(number)?;
        self.known.insert(process);
        for thread in threads {
            match self.open_reference(Scope::Thread(thread)) {
                // A thread may end in between.
                Err(_) if !Path::new(&format!("/proc/{process}/task/{thread}")).exists() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Count what descends from a process already; what comes later is counted from its fork on.
    fn follow_descendants(&mut self, process: i32) -> Result<(), Error> {
        for one in target::family(Path::new(ROOT), process) {
            if !self.known.contains(&one) {
                self.follow_unless_gone(one)?;
            }
        }
        Ok(())
    }

    fn follow_unless_gone(&mut self, process: i32) -> Result<(), Error> {
        match self.follow(process) {
            // It may end in between.
            Err(_) if target::threads(Path::new(ROOT), process).is_empty() => Ok(()),
            other => other,
        }
    }

    /// Count the virtual machines that are there now and are not counted yet.
    pub fn follow_machines(&mut self, only: Option<i32>) -> Result<(), Error> {
        let machines = target::machines(Path::new(ROOT));
        if let Some(process) = only.filter(|process| !machines.contains(process)) {
            return Err(Error::failure(
                format!("--vm {process}"),
                "this process has no virtual machine",
                "name the process of a running KVM guest, or use --vm all",
            ));
        }
        for process in machines {
            let wanted = only.is_none_or(|only| only == process);
            if wanted && !self.known.contains(&process) {
                match only {
                    Some(_) => self.follow(process)?,
                    None => self.follow_unless_gone(process)?,
                }
            }
        }
        Ok(())
    }

    /// Processes of the virtual machines that are counted.
    pub fn machines(&self) -> impl Iterator<Item = u32> {
        self.known.iter().filter_map(|one| u32::try_from(*one).ok())
    }

    fn open_reference(&mut self, scope: Scope) -> Result<(), Error> {
        let event = perf::open(self.request, scope, None)
            .map_err(|errno| system("reference event", errno))?;
        let overflow = self.programs.attach_overflow(event)?;
        sys::perf_event_enable(overflow.as_fd(), true)
            .map_err(|errno| system("reference event", errno))?;
        self.references.push((scope, overflow));
        Ok(())
    }

    /// No row is made from now on; the counters stay as they are.
    pub fn stop(&mut self) {
        for (_, event) in &self.references {
            // An event of a thread that is gone cannot be stopped, and does not count.
            let _ = sys::perf_event_enable(event.as_fd(), false);
        }
    }
}

fn gone(process: i32, errno: Errno) -> Error {
    Error::failure(
        format!("process {process}"),
        errno.desc(),
        "name a process that runs",
    )
}
