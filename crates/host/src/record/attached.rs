//! What keeps a recording open: programs, links, perf events.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;
use vtax_sys::clock::monotonic_ns;

use crate::record::availability::Machine;
use crate::record::clock::Pair;
use crate::record::online::Cpus;
use crate::record::options::RecordOptions;
use crate::record::perf::{self, Reading, Request};
use crate::record::plan::Columns;
use crate::record::program::{Overflow, Programs};
use crate::record::reference::running::Running;
use crate::record::reference::throttling::Throttling;
use crate::record::rotation::{Groups, Switch};
use crate::record::stacks::unwinder::Unwinder;
use crate::record::statistics_unsafe::enable_program_statistics;
use crate::record::target::{self, Target};
use crate::record::traced::Taker;
use crate::record::watch::Watch;
use vtax_sys::calls::descriptors::pidfd_open;
use vtax_sys::calls::perf::perf_event_enable;
use vtax_sys::confine::Confinement;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

/// Open one of the perf events that rows read.
fn open_counter(
    columns: &Columns,
    index: usize,
    cpu: u32,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    let request = columns.perf.get(index).ok_or(Errno::EINVAL)?;
    perf::open(*request, cpu, leader)
}

pub fn system(call: &str, errno: Errno) -> Error {
    Error::failure(call, errno.desc(), "try again")
}

/// What keeps the recording open: programs, links, events.
pub struct Attached {
    pub programs: Programs,
    /// None: programs count the reference event.
    request: Option<Request>,
    references: Vec<(u32, Overflow)>,
    /// When perf stopped the reference events.
    pub throttling: Throttling,
    /// How long closed or stopped reference events counted.
    pub running: Running,
    counters: Vec<Counter>,
    /// Which counters are on together.
    pub groups: Groups,
    /// What the programs need to follow stacks, if that is wanted.
    pub unwinder: Option<Unwinder>,
    current: usize,
    known: BTreeSet<i32>,
    measuring: Option<OwnedFd>,
    taker: Option<Taker>,
}

/// A perf event that the rows of a CPU read.
#[derive(Debug)]
struct Counter {
    cpu: u32,
    column: usize,
    event: OwnedFd,
}

/// What a CPU that has gone leaves behind.
pub struct Left {
    /// The last reading of its reference event.
    pub reference: Reading,
    /// The last readings of the events that rows read, by their columns.
    pub readings: Vec<(usize, Reading)>,
    /// The groups that were switched off.
    pub switches: Vec<Switch>,
}

/// How the recording began.
pub struct Begin {
    pub clock: Pair,
    /// The command's process.
    pub child: Option<Pid>,
    /// The groups of counters that were enabled, before `clock`.
    pub switches: Vec<Switch>,
}

impl Attached {
    /// Nothing is attached yet.
    pub fn new(programs: Programs, reference: Option<Request>, groups: Groups) -> Self {
        Self {
            programs,
            request: reference,
            references: Vec::new(),
            throttling: Throttling::default(),
            running: Running::default(),
            counters: Vec::new(),
            groups,
            unwinder: None,
            current: 0,
            known: BTreeSet::new(),
            measuring: None,
            taker: None,
        }
    }

    /// Attach everything, then let the reference event count, then let the command begin.
    ///
    /// Fails when the kernel refuses a perf event or a program, when a requested process has ended
    /// or has no virtual machine, and when the command cannot be started.
    pub fn begin(
        &mut self,
        options: &RecordOptions,
        machine: &Machine,
        cpus: &Cpus,
        columns: &Columns,
        confinement: &Confinement,
        watch: &mut Watch,
    ) -> Result<Begin, Error> {
        if options.statistics {
            let statistics = enable_program_statistics();
            self.measuring = Some(statistics.map_err(|errno| system("bpf statistics", errno))?);
        }
        let mut switches = Vec::new();
        for cpu in &cpus.online {
            switches.extend(self.open_groups(columns, *cpu).or_else(unless_gone(*cpu))?);
        }
        if options.call_sites || options.stacks {
            let argv = match &options.target {
                Target::Command(argv) => argv.as_slice(),
                _ => &[],
            };
            self.unwinder = Some(Unwinder::begin(&self.programs, argv)?);
        }
        let clock = Pair::now();
        self.programs.attach_counters()?;
        self.open_references(cpus)?;
        let child = self.open_target(&options.target, machine, confinement, watch)?;
        Ok(Begin {
            clock,
            child,
            switches,
        })
    }

    /// Open all groups on a CPU, and enable those whose turn it is.
    fn open_groups(&mut self, columns: &Columns, cpu: u32) -> Result<Vec<Switch>, Error> {
        let groups = self.groups.clone();
        for group in &groups.turns {
            self.open_group(columns, group, cpu)?;
        }
        for column in groups.always {
            self.open_group(columns, &[column], cpu)?;
            self.enable(cpu, column, true)?;
        }
        self.enable_group(cpu, self.current, true)?;
        let at_ns = monotonic_ns();
        let numbers = [self.current, groups.turns.len()];
        Ok(numbers
            .map(|group| Switch {
                cpu,
                group,
                on: true,
                at_ns,
            })
            .to_vec())
    }

    /// Give the next group its turn, on all CPUs.
    ///
    /// Where that fails, as on a CPU that has just gone offline, no group is known to be on.
    pub fn turn(&mut self) -> Vec<Switch> {
        let (last, next) = (self.current, self.groups.after(self.current));
        self.current = next;
        let cpus: BTreeSet<u32> = self.counters.iter().map(|counter| counter.cpu).collect();
        let mut switches = Vec::with_capacity(2 * cpus.len());
        for cpu in cpus {
            let mut switch = |group, on, at_ns| {
                switches.push(Switch {
                    cpu,
                    group,
                    on,
                    at_ns,
                });
            };
            switch(last, false, monotonic_ns());
            let off = self.enable_group(cpu, last, false);
            if off
                .and_then(|()| self.enable_group(cpu, next, true))
                .is_ok()
            {
                switch(next, true, monotonic_ns());
            }
        }
        switches
    }

    fn enable_group(&self, cpu: u32, group: usize, on: bool) -> Result<(), Error> {
        let leader = self.groups.turns.get(group).and_then(|group| group.first());
        leader.map_or(Ok(()), |leader| self.enable(cpu, *leader, on))
    }

    fn enable(&self, cpu: u32, column: usize, on: bool) -> Result<(), Error> {
        let mut counters = self.counters.iter();
        let found = counters.find(|counter| counter.cpu == cpu && counter.column == column);
        found.map_or(Ok(()), |counter| {
            perf_event_enable(counter.event.as_fd(), on)
                .map_err(|errno| system("perf event", errno))
        })
    }

    /// Record that a CPU went offline.
    pub fn cpu_left(&mut self, cpu: u32) -> Left {
        let mut reference = Reading::default();
        self.references.retain(|(at, event)| {
            let stays = *at != cpu;
            if !stays {
                reference = perf::read(event).ok().flatten().unwrap_or_default();
            }
            stays
        });
        self.running.add(cpu, reference);
        self.throttling.leave(cpu, monotonic_ns());
        let (gone, stay) = std::mem::take(&mut self.counters)
            .into_iter()
            .partition::<Vec<_>, _>(|counter| counter.cpu == cpu);
        self.counters = stay;
        let readings = gone.iter().filter_map(|counter| {
            let reading = perf::read(&counter.event).ok()??;
            Some((counter.column, reading))
        });
        let at_ns = monotonic_ns();
        Left {
            reference,
            readings: readings.collect(),
            switches: [self.current, self.groups.turns.len()]
                .map(|group| Switch {
                    cpu,
                    group,
                    on: false,
                    at_ns,
                })
                .to_vec(),
        }
    }

    /// A CPU came online: let its events count.
    ///
    /// Fails when the kernel refuses an event, as it does when the CPU has gone offline again.
    pub fn cpu_came(&mut self, columns: &Columns, cpu: u32) -> Result<Vec<Switch>, Error> {
        let switches = self.open_groups(columns, cpu)?;
        self.open_reference(cpu)?;
        Ok(switches)
    }

    fn open_group(&mut self, columns: &Columns, group: &[usize], cpu: u32) -> Result<(), Error> {
        let failed = |errno| system("perf event", errno);
        let mut opened: Vec<OwnedFd> = Vec::with_capacity(group.len());
        for column in group {
            let leader = opened.first().map(OwnedFd::as_fd);
            let event = open_counter(columns, *column, cpu, leader).map_err(failed)?;
            self.programs.put_perf_event(cpu, *column, event.as_fd())?;
            opened.push(event);
        }
        let opened = group.iter().zip(opened);
        self.counters.extend(opened.map(|(column, event)| Counter {
            cpu,
            column: *column,
            event,
        }));
        Ok(())
    }

    /// Open one event for each CPU, whatever the target: the kernel reprograms an event that
    /// follows tasks at each context switch, which costs more than everything else.
    fn open_references(&mut self, cpus: &Cpus) -> Result<(), Error> {
        cpus.online
            .iter()
            .try_for_each(|cpu| self.open_reference(*cpu).or_else(unless_gone(*cpu)))
    }

    /// Name the targets, and let the command begin.
    fn open_target(
        &mut self,
        target: &Target,
        machine: &Machine,
        confinement: &Confinement,
        watch: &mut Watch,
    ) -> Result<Option<Pid>, Error> {
        match target {
            Target::System => {}
            Target::Processes(processes) => {
                for process in processes {
                    self.follow(*process)?;
                    self.follow_descendants(*process)?;
                    self.watch_process(watch, Pid::from_raw(*process))?;
                }
            }
            Target::Machines(process) => {
                self.follow_machines(*process)?;
                if let Some(process) = process {
                    self.watch_process(watch, Pid::from_raw(*process))?;
                }
            }
            Target::Command(argv) => {
                let held = target::hold(argv, confinement)?;
                target::rest(&held);
                if machine.without_vdso {
                    let taker = Taker::begin(held.process);
                    self.taker = Some(taker.map_err(|errno| system("ptrace", errno))?);
                }
                self.follow(held.process.as_raw())?;
                self.watch_process(watch, held.process)?;
                return target::go(held, argv).map(Some);
            }
        }
        Ok(None)
    }

    #[allow(clippy::unused_self, reason = "reads as one of the steps")]
    fn watch_process(&self, watch: &mut Watch, process: Pid) -> Result<(), Error> {
        let descriptor =
            pidfd_open(process.as_raw()).map_err(|errno| gone(process.as_raw(), errno))?;
        watch.process(descriptor);
        Ok(())
    }

    /// Count a process, with all its threads, from here on.
    fn follow(&mut self, process: i32) -> Result<(), Error> {
        if !Tree::host().has_process(process) {
            return Err(gone(process, Errno::ESRCH));
        }
        self.programs
            .put_target(u32::try_from(process).unwrap_or(0))?;
        self.known.insert(process);
        Ok(())
    }

    /// Count the existing descendants of a process; later descendants are counted from their fork
    /// on.
    fn follow_descendants(&mut self, process: i32) -> Result<(), Error> {
        for one in target::family(&Tree::host(), process) {
            if !self.known.contains(&one) {
                self.follow_unless_gone(one)?;
            }
        }
        Ok(())
    }

    fn follow_unless_gone(&mut self, process: i32) -> Result<(), Error> {
        match self.follow(process) {
            // The process may end in between.
            Err(_) if !Tree::host().has_process(process) => Ok(()),
            other => other,
        }
    }

    /// Count the virtual machines that exist and are not counted yet.
    ///
    /// Fails when the process `only` has no virtual machine or ends meanwhile. Without `only`, a
    /// process that ends meanwhile is skipped.
    pub fn follow_machines(&mut self, only: Option<i32>) -> Result<(), Error> {
        let machines = target::machines(&Tree::host());
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

    fn open_reference(&mut self, cpu: u32) -> Result<(), Error> {
        let Some(request) = self.request else {
            return Ok(());
        };
        let event =
            perf::open(request, cpu, None).map_err(|errno| system("reference event", errno))?;
        let overflow = self.programs.attach_overflow(event)?;
        self.throttling
            .watch(cpu, &overflow)
            .and_then(|()| perf_event_enable(overflow.as_fd(), true))
            .map_err(|errno| system("reference event", errno))?;
        self.references.push((cpu, overflow));
        Ok(())
    }

    /// Look at the files in which code was seen since.
    ///
    /// Fails as [`Unwinder::learn`].
    pub fn learn_files(&mut self) -> Result<(), Error> {
        let unwinder = self.unwinder.as_mut();
        unwinder.map_or(Ok(()), |unwinder| unwinder.learn(&self.programs))
    }

    /// The command has ended: who traces it learns its end first.
    pub fn reap(&mut self) {
        if let Some(taker) = self.taker.take() {
            taker.wait();
        }
    }

    /// Make no more rows; the counters stay as they are.
    pub fn stop(&mut self) {
        if self.request.is_none() {
            let online = Cpus::find(&Tree::host()).map_or_else(Vec::new, |cpus| cpus.online);
            self.programs.stop_rows(&online);
        }
        for (cpu, event) in &self.references {
            // An event of a CPU that is offline cannot be stopped, and does not count.
            let _ = perf_event_enable(event.as_fd(), false);
            if let Ok(Some(reading)) = perf::read(event) {
                self.running.add(*cpu, reading);
            }
        }
    }
}

/// Ignore the error of a CPU that has just gone offline: the change is reported next.
///
/// The closure fails with the error that it is given when the CPU is online, or when the kernel
/// does not say which CPUs are.
pub fn unless_gone<T: Default>(cpu: u32) -> impl FnOnce(Error) -> Result<T, Error> {
    move |error| match Cpus::find(&Tree::host()) {
        Some(cpus) if !cpus.online.contains(&cpu) => Ok(T::default()),
        _ => Err(error),
    }
}

fn gone(process: i32, errno: Errno) -> Error {
    Error::failure(
        format!("process {process}"),
        errno.desc(),
        "name a process that runs",
    )
}
