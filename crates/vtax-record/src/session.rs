//! One recording, from the first look at the machine to the finished files.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Pid;
use vtax_guest_page::applications::{self, Collector};
use vtax_guest_page::{PageError, Reader, monotonic_ns};

use crate::availability::Machine;
use crate::clock::Pair;
use crate::consumer::Consumer;
use crate::error::Error;
use crate::files;
use crate::interval::Interval;
use crate::online::Cpus;
use crate::page_samples::{self, PageSamples};
use crate::perf::{self, Request, Scope};
use crate::permission;
use crate::plan::{Columns, drain_period};
use crate::program::{Overflow, Programs};
use crate::reference::{self, Reference};
use crate::ring::{Rings, Shape};
use crate::skew::Skew;
use crate::sources::counters::scarcity;
use crate::sources::{self, select};
use crate::summary::{self, Summary};
use crate::sys;
use crate::target::{self, End, Gated, Target};
use crate::watch::Watch;

/// What to record, and where to.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length of an interval; `None`: what fits the machine.
    pub every: Option<Interval>,
    /// Names of events.
    pub events: String,
    /// Whose events.
    pub target: Target,
    /// End after this time.
    pub duration: Option<Duration>,
    /// Rows are in the file no later than this.
    pub flush: Duration,
    /// Folder of the files.
    pub out: PathBuf,
    /// Rows of one CPU's ring; `None`: what fits the memory.
    pub ring_rows: Option<u32>,
    /// The page in which a guest publishes counters.
    pub guest: Option<PathBuf>,
    /// The guest's clock, by an exchange of messages with it.
    pub guest_clock: Option<Skew>,
    /// Counters of this machine's applications.
    pub applications: Option<Applications>,
    /// Measure how long the eBPF programs run.
    pub statistics: bool,
}

/// Which counters that applications register become columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applications {
    /// Those that are registered when the recording begins.
    All,
    /// These whole names, whenever they are registered.
    Named(Vec<String>),
}

/// The machine that is recorded on.
const ROOT: &str = "/";

/// Make a recording.
pub fn record(options: &Options) -> Result<Summary, Error> {
    permitted()?;
    let root = Path::new(ROOT);
    let cpus = Cpus::find(root).ok_or_else(|| {
        Error::failure(
            "CPUs",
            "/sys/devices/system/cpu does not tell",
            "mount /sys",
        )
    })?;
    let machine = Machine::look(root, cpus.online.first().copied().unwrap_or(0));
    if let Some(reason) = machine.without_types() {
        return Err(Error::failure(
            "eBPF programs",
            reason,
            "use a kernel built with CONFIG_DEBUG_INFO_BTF",
        ));
    }
    let choices = select::select(&sources::all(), &options.events)?;
    let columns = Columns::arrange(&machine, choices)?;
    let filter = options.target != Target::System;
    let (reference, interval) = reference::choose(&machine, options.every, filter)?;
    let mut samples = Vec::new();
    if let Some(page) = &options.guest {
        samples.push(open_page(page)?);
    }
    if let Some(applications) = &options.applications {
        samples.push(open_applications(applications)?);
    }
    let folder = files::Folder::create(&options.out)?;

    let shape = columns.shape(cpus.possible, options.ring_rows);
    let settings = columns.settings(&machine, shape, interval.period(), filter);
    let mut watch = Watch::new().map_err(|errno| system("signalfd", errno))?;
    let programs = Programs::load(&settings)?;
    let mut attached = Attached::new(programs, reference, interval);
    let begin = attached.begin(options, &cpus, &columns, &mut watch)?;
    let recording = Recording {
        options,
        shape,
        columns: &columns,
        period: drain_period(shape, interval.shortest(), options.flush),
    };
    let (consumer, end) = recording.run(&mut attached, &begin, &watch, &folder, samples)?;
    let programs = summary::programs(&attached.programs, options.statistics);
    let result = summary::Facts {
        reference,
        interval,
        cpus: &cpus,
        shape,
        columns: &columns,
        begin: begin.clock,
        end,
        programs,
        free_counters: attached.free_counters,
        filter,
        exchange: options.guest_clock,
    };
    summary::finish(&result, consumer, &folder)
}

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

fn open_page(path: &Path) -> Result<PageSamples, Error> {
    Reader::open(path)
        .and_then(PageSamples::page)
        .map_err(|error| {
            Error::failure(
                format!("--guest {}", path.display()),
                error,
                "name a page that a publisher has begun (docs/guest-page.md)",
            )
        })
}

fn open_applications(applications: &Applications) -> Result<PageSamples, Error> {
    let folder = applications::folder();
    let names = match applications {
        Applications::All => None,
        Applications::Named(names) => Some(names.clone()),
    };
    Collector::begin(&folder)
        .map_err(|error| PageError::File(error.to_string()))
        .and_then(|collector| PageSamples::applications(collector, names))
        .map_err(|error| {
            Error::failure(
                format!("--app: {}", folder.display()),
                error,
                "name a folder that can be written in VTAX_APP_DIR",
            )
        })
}

fn permitted() -> Result<(), Error> {
    match permission::missing(Path::new(ROOT)) {
        None => Ok(()),
        Some((reason, remedy)) => Err(Error::failure("permission", reason, remedy)),
    }
}

fn system(call: &str, errno: Errno) -> Error {
    Error::failure(call, errno.desc(), "try again")
}

/// What holds the recording open: programs, links, events.
struct Attached {
    programs: Programs,
    request: Request,
    references: Vec<Overflow>,
    counters: Vec<OwnedFd>,
    known: BTreeSet<i32>,
    measuring: Option<OwnedFd>,
    free_counters: Option<usize>,
}

/// How the recording began.
struct Begin {
    clock: Pair,
    /// The command that was started.
    child: Option<Pid>,
}

impl Attached {
    fn new(programs: Programs, reference: Reference, interval: Interval) -> Self {
        Self {
            programs,
            request: reference.request(interval),
            references: Vec::new(),
            counters: Vec::new(),
            known: BTreeSet::new(),
            measuring: None,
            free_counters: None,
        }
    }

    /// Attach everything, then let the reference event count, then the command begin.
    fn begin(
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
        let groups: Vec<Vec<usize>> = scarcity::groups(hardware.len(), free)
            .into_iter()
            .filter_map(|group| hardware.get(group).map(<[usize]>::to_vec))
            .chain(columns.software().map(|column| vec![column]))
            .collect();
        for cpu in &cpus.online {
            for group in &groups {
                self.open_group(columns, group, *cpu)?;
            }
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
        self.counters.extend(opened);
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

    /// Count the virtual machines that are there now and are not counted yet.
    fn follow_machines(&mut self, only: Option<i32>) -> Result<(), Error> {
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
                match self.follow(process) {
                    // It may end in between.
                    Err(_)
                        if only.is_none()
                            && target::threads(Path::new(ROOT), process).is_empty() => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    fn open_reference(&mut self, scope: Scope) -> Result<(), Error> {
        let event = perf::open(self.request, scope, None)
            .map_err(|errno| system("reference event", errno))?;
        let overflow = self.programs.attach_overflow(event)?;
        sys::perf_event_enable(overflow.as_fd(), true)
            .map_err(|errno| system("reference event", errno))?;
        self.references.push(overflow);
        Ok(())
    }

    /// No row is made from now on; the counters stay as they are.
    fn stop(&mut self) {
        for event in &self.references {
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

/// The parts of a recording that do not change while it runs.
struct Recording<'a> {
    options: &'a Options,
    shape: Shape,
    columns: &'a Columns,
    period: Duration,
}

impl Recording<'_> {
    /// Empty the rings until the recording is to end.
    fn run(
        &self,
        attached: &mut Attached,
        begin: &Begin,
        watch: &Watch,
        folder: &files::Folder,
        samples: Vec<PageSamples>,
    ) -> Result<(Consumer, summary::End), Error> {
        let (states, rows) = attached
            .programs
            .ring_maps()
            .ok_or_else(|| Error::failure("rings", "a map is absent", "report this as a bug"))?;
        let rings = Rings::map(states, rows, self.shape).map_err(|errno| system("mmap", errno))?;
        let start_ns = if self.options.target == Target::System {
            begin.clock.monotonic_ns
        } else {
            0
        };
        let period = if samples.is_empty() {
            self.period
        } else {
            self.period.min(page_samples::PERIOD)
        };
        let mut consumer =
            Consumer::new(rings, self.columns, start_ns, begin.clock, folder, samples)?;
        let deadline = self
            .options
            .duration
            .map(|duration| Instant::now() + duration);
        let mut flushed = Instant::now();
        let reason = loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = left.map_or(period, |left| left.min(period));
            let found = watch.wait(limit).map_err(|errno| system("poll", errno))?;
            consumer.drain();
            if consumer.full() || flushed.elapsed() >= self.options.flush {
                consumer.flush()?;
                flushed = Instant::now();
                if self.options.target == Target::Machines(None) {
                    attached.follow_machines(None)?;
                }
            }
            if found.signal.is_some() {
                break "signal";
            }
            if found.ended {
                break "process";
            }
            if left.is_some_and(|left| left.is_zero()) {
                break "time";
            }
        };
        attached.stop();
        let ended_ns = monotonic_ns();
        let command = begin
            .child
            .map(|child| target::ended(child).unwrap_or(End::Running));
        consumer.finish()?;
        Ok((
            consumer,
            summary::End {
                reason,
                monotonic_ns: ended_ns,
                command,
            },
        ))
    }
}

/// Finish the files of a recorder that was killed.
pub fn finish(out: &Path) -> Result<crate::parquet::Written, Error> {
    let folder = files::Folder::open(out);
    if !folder.stream().exists() {
        return Err(Error::misuse(
            folder.stream().display().to_string(),
            "there is no unfinished recording",
            "name the folder of a recorder that was killed",
        ));
    }
    let written = crate::parquet::finish(&folder.stream(), &folder.rows())
        .map_err(|error| files::failed(&folder.rows(), error))?;
    fs::remove_file(folder.stream()).map_err(|error| files::failed(&folder.stream(), error))?;
    Ok(written)
}
