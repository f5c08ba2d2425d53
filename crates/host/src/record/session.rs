//! One recording, from the first examination of the machine to the finished files.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use vtax_sys::clock::monotonic_ns;
use vtax_sys::confine::{Confinement, Limits};
use vtax_sys::guest_page::applications::{self, Collector};
use vtax_sys::guest_page::{PageError, Reader};
use vtax_sys::tree::Tree;

use crate::record::attached::{Attached, Begin, system, unless_gone};
use crate::record::availability::Machine;
use crate::record::consumer::{Beside, Consumer};
use crate::record::difference::Start;
use crate::record::files;
use crate::record::hotplug::{Change, Gap, Hotplug};
use crate::record::interval::Interval;
use crate::record::online::Cpus;
use crate::record::options::{Applications, RecordOptions};
use crate::record::page_samples::{self, PageSamples};
use crate::record::perf::Request;
use crate::record::permission;
use crate::record::plan::{Columns, drain_period};
use crate::record::program::Programs;
use crate::record::reference::{self, throttling};
use crate::record::ring::{Rings, Shape};
use crate::record::rotation::{self, Groups};
use crate::record::sources::counters::grouping::{self, Kernel};
use crate::record::sources::select::{self, Choice};
use crate::record::sources::{self, Origin};
use crate::record::stacks::layout::STACK_WORDS;
use crate::record::stacks::samples::{self, Samples};
use crate::record::stacks::{calls, unwinder};
use crate::record::summary::{self, Summary};
use crate::record::target::{self, End, Target};
use crate::record::watch::Watch;
use vtax_sys::terminal::Error;

/// Make a recording.
///
/// Fails when a permission, `/sys` or the kernel's types are missing, when a requested event, page
/// or target is not available, when the kernel refuses a program or an event, and when the folder
/// holds a recording already or cannot be written.
pub fn record(options: &RecordOptions) -> Result<Summary, Error> {
    permitted(options)?;
    let tree = Tree::host();
    let cpus = Cpus::find(&tree).ok_or_else(|| {
        Error::failure(
            "CPUs",
            "/sys/devices/system/cpu does not tell",
            "mount /sys",
        )
    })?;
    let mut machine = Machine::look(&tree, cpus.online.first().copied().unwrap_or(0));
    if let Some(reason) = machine.without_types() {
        return Err(Error::failure(
            "eBPF programs",
            reason,
            "use a kernel built with CONFIG_DEBUG_INFO_BTF",
        ));
    }
    // Only root's programs keep their rights, as that of a setuid file, while they are traced.
    machine.without_vdso = options.without_vdso && geteuid().is_root();
    let asked = options.all_events();
    let events = sources::all_and(&tree, &asked);
    let choices = select::select(&events, &asked)?;
    let filter = options.target != Target::System;
    let reference::Choice {
        reference,
        interval,
        warning,
    } = reference::choose(&machine, &cpus.online, options.every.clone(), filter)?;
    let request = reference.request(&interval);
    let (columns, groups) = columns(options, &machine, request, choices)?;
    let samples = open_samples(options)?;
    let folder = files::Folder::create(&options.out)?;

    let shape = columns.shape(cpus.possible, options.ring_rows, options.stacks);
    let settings = columns.settings(&machine, shape, &interval, options);
    let mut watch = Watch::new().map_err(|errno| system("signalfd", errno))?;
    let programs = Programs::load(&settings)?;
    // Dropped last, so that what the command left is ended on every path out.
    let limits = Limits {
        memory_bytes: None,
        swap_bytes: 0,
        processes: options.processes,
    };
    let (confinement, refused) = Confinement::new(&tree, limits);
    let limit = throttling::limit(&tree);
    let mut attached = Attached::new(programs, request, groups);
    let hotplug = Hotplug::begin(&tree, &cpus.online);
    let begin = attached.begin(options, &machine, &cpus, &columns, &confinement, &mut watch)?;
    let recording = Recording {
        options,
        shape,
        columns: &columns,
        period: drain_period(shape, interval.shortest(), options.flush),
        turn: interval.shortest().max(rotation::SHORTEST),
    };
    let Counted {
        mut consumer,
        end,
        programs,
        gaps,
    } = recording.run(&mut attached, &begin, &mut watch, hotplug, &folder, samples)?;
    let (call_sites, stacks) = write_stacks(
        options,
        &attached,
        consumer.stacks.take(),
        &columns,
        &folder,
    )?;
    let result = summary::Facts {
        reference,
        interval,
        cpus: &cpus,
        shape,
        columns: &columns,
        begin: begin.clock,
        end,
        programs,
        other_calls: summary::other_calls(&attached.programs, &columns),
        call_sites,
        stacks,
        counters: options.counters,
        groups: &attached.groups,
        running: &attached.running,
        throttling: &attached.throttling,
        max_sample_rate: [limit, throttling::limit(&tree)],
        no_instructions: warning,
        filter,
        exchange: options.guest_clock,
        gaps,
        unlimited: refused.processes,
    };
    let running = begin
        .child
        .filter(|_| result.end.command == Some(End::Running));
    let summary = summary::finish(&result, consumer, &folder);
    if let Some(child) = running {
        target::ask_to_end(child);
    }
    summary
}

/// The pages that rows are to have counters of.
fn open_samples(options: &RecordOptions) -> Result<Vec<PageSamples>, Error> {
    let alone = options.pages.len() == 1;
    let pages = options.pages.iter().enumerate().map(|(number, path)| {
        let samples = open_page(path)?;
        Ok(if alone {
            samples
        } else {
            samples.of_guest(number)
        })
    });
    let applications = options.applications.as_ref().map(open_applications);
    pages.chain(applications).collect()
}

/// Write the stacks that are wanted, of calls and of rows.
fn write_stacks(
    options: &RecordOptions,
    attached: &Attached,
    rows: Option<Samples>,
    columns: &Columns,
    folder: &files::Folder,
) -> Result<(Option<calls::Counted>, Option<samples::Counted>), Error> {
    let write_calls = || calls::write(&attached.programs, columns, folder);
    let call_sites = options.call_sites.then(write_calls);
    let rows = rows.map(|rows| rows.write(&attached.programs, folder));
    Ok((call_sites.transpose()?, rows.transpose()?))
}

/// The columns, and which of their counters are on together. Both use the counters that are free
/// beside the reference event.
fn columns(
    options: &RecordOptions,
    machine: &Machine,
    reference: Option<Request>,
    choices: Vec<Choice>,
) -> Result<(Columns, Groups), Error> {
    let failed = |errno| system("perf event", errno);
    let mut pmu = Kernel::beside(reference, machine.cpu()).map_err(failed)?;
    let columns = Columns::arrange(choices, |event| {
        let lacks = machine.lacks(event);
        lacks.or_else(|| match event.origin {
            Origin::Perf(event) => grouping::crowded_out(&mut pmu, event),
            Origin::Counted { .. } | Origin::Steal => None,
        })
    })?;
    if options.call_sites && !sources::calls::classed(&columns.names()) {
        return Err(Error::misuse(
            "--call-sites",
            "no class of system calls is recorded",
            "add --events calls, or classes such as calls.read",
        ));
    }
    let limit = options.counters.map(NonZeroUsize::get);
    let groups = columns.divide(&mut pmu, limit).map_err(failed)?;
    Ok((columns, groups))
}

/// End the recording, with its files complete, when the parent process ends.
///
/// Fails when the kernel refuses to announce the parent's end.
pub fn finish_with_parent() -> Result<(), Error> {
    let failed = |errno| system("prctl", errno);
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).map_err(failed)
}

fn open_page(path: &Path) -> Result<PageSamples, Error> {
    Reader::open(path)
        .and_then(PageSamples::page)
        .map_err(|error| {
            Error::failure(
                format!("--guest {}", path.display()),
                error,
                "name a page that a publisher has begun (docs/record.md)",
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

fn permitted(options: &RecordOptions) -> Result<(), Error> {
    if options.stacks && STACK_WORDS == 0 {
        return Err(Error::misuse(
            "--stacks",
            "stacks are followed on x86-64 only",
            "leave it out",
        ));
    }
    if options.stacks && matches!(options.every, Some(Interval::Events { .. })) {
        return Err(Error::misuse(
            "--stacks",
            "rows that events end have no stacks",
            "give --every a time or a number of instructions",
        ));
    }
    match permission::missing(&Tree::host()) {
        None => Ok(()),
        Some((reason, remedy)) => Err(Error::failure("permission", reason, &remedy)),
    }
}

/// The parts of a recording that do not change while it runs.
struct Recording<'a> {
    options: &'a RecordOptions,
    shape: Shape,
    columns: &'a Columns,
    period: Duration,
    /// The time between two checks whether counters are to take turns.
    turn: Duration,
}

/// The counts of a recording.
struct Counted {
    consumer: Consumer,
    end: summary::End,
    programs: Vec<summary::Program>,
    gaps: Vec<Gap>,
}

impl Recording<'_> {
    /// Empty the rings until the recording is to end.
    fn run(
        &self,
        attached: &mut Attached,
        begin: &Begin,
        watch: &mut Watch,
        mut hotplug: Hotplug,
        folder: &files::Folder,
        samples: Vec<PageSamples>,
    ) -> Result<Counted, Error> {
        let (states, rows) = attached
            .programs
            .ring_maps()
            .ok_or_else(|| Error::failure("rings", "a map is absent", "report this as a bug"))?;
        let rings = Rings::map(states, rows, self.shape).map_err(|errno| system("mmap", errno))?;
        let mut period = self.period;
        if !samples.is_empty() {
            period = period.min(page_samples::PERIOD);
        }
        if attached.groups.rotate() {
            period = period.min(self.turn);
        }
        if attached.unwinder.is_some() {
            period = period.min(unwinder::PERIOD);
        }
        let mut consumer = Consumer::new(
            rings,
            self.columns,
            &attached.groups,
            self.start(begin),
            begin.clock,
            folder,
            Beside {
                samples,
                stacks: self.options.stacks.then(Samples::default),
            },
        )?;
        consumer.switched(&begin.switches);
        if matches!(self.options.target, Target::Machines(_)) {
            consumer.know_machines(attached.machines());
        }
        let deadline = self
            .options
            .duration
            .map(|duration| Instant::now() + duration);
        let mut flushed = Instant::now();
        let mut gaps = Vec::new();
        let reason = loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = left.map_or(period, |left| left.min(period));
            let found = watch
                .wait(limit, hotplug.descriptor())
                .map_err(|errno| system("poll", errno))?;
            consumer.drain(&mut attached.throttling);
            attached.learn_files()?;
            if let Some(stacks) = &mut consumer.stacks {
                stacks.bound(&attached.programs)?;
            }
            if attached.groups.rotate() && consumer.schedule().due(monotonic_ns()) {
                consumer.switched(&attached.turn());
                consumer.schedule().turned(monotonic_ns());
            }
            let flush = consumer.full() || flushed.elapsed() >= self.options.flush;
            if found.hotplug || flush {
                for change in hotplug.changes() {
                    self.follow_cpu(change, attached, &mut consumer, &mut gaps)?;
                }
                // KVM announces a new machine on the same socket.
                if self.options.target == Target::Machines(None) {
                    attached.follow_machines(None)?;
                    consumer.know_machines(attached.machines());
                }
            }
            if flush {
                consumer.flush()?;
                flushed = Instant::now();
            }
            if found.signal.is_some() {
                break "signal";
            }
            if found.ended {
                attached.reap();
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
        consumer.take_last(&mut attached.throttling);
        attached.throttling.end(ended_ns);
        // This comes before the stream is written: writing would count in the programs' runs only.
        let programs = summary::programs(&attached.programs, self.options.statistics);
        consumer.finish()?;
        Ok(Counted {
            consumer,
            end: summary::End {
                reason,
                monotonic_ns: ended_ns,
                command,
            },
            programs,
            gaps,
        })
    }

    fn start(&self, begin: &Begin) -> Start {
        let begin_ns = begin.clock.monotonic_ns;
        if self.options.target == Target::System {
            return Start {
                run_ns: begin_ns,
                read_ns: None,
            };
        }
        // The programs read the counters when a target begins to run, which is later.
        Start {
            run_ns: 0,
            read_ns: Some(begin_ns),
        }
    }

    /// Let the events of a CPU that came online count; keep the counts of a CPU that went offline.
    fn follow_cpu(
        &self,
        change: Change,
        attached: &mut Attached,
        consumer: &mut Consumer,
        gaps: &mut Vec<Gap>,
    ) -> Result<(), Error> {
        let Change { cpu, online } = change;
        let whole = self.options.target == Target::System;
        if !online {
            let left = attached.cpu_left(cpu);
            consumer.switched(&left.switches);
            if whole {
                consumer.cpu_left(cpu, left.reference, &left.readings);
            }
            gaps.push(Gap {
                cpu,
                from_ns: Some(monotonic_ns()),
                to_ns: None,
            });
            return Ok(());
        }
        // The time is taken before the CPU counts: a recorder that has to wait for its own CPU
        // would take it after rows.
        let came_ns = monotonic_ns();
        if whole {
            consumer.cpu_came(cpu, came_ns);
        }
        let switches = match attached.cpu_came(self.columns, cpu) {
            Ok(switches) => switches,
            // The CPU may have gone offline again; that is the next change.
            Err(error) => return unless_gone(cpu)(error),
        };
        consumer.switched(&switches);
        let to_ns = Some(came_ns);
        match gaps
            .iter_mut()
            .find(|gap| gap.cpu == cpu && gap.to_ns.is_none())
        {
            Some(gap) => gap.to_ns = to_ns,
            None => gaps.push(Gap {
                cpu,
                from_ns: None,
                to_ns,
            }),
        }
        Ok(())
    }
}

/// Finish the files of a recorder that was killed.
///
/// Fails when the folder holds no unfinished recording, when its stream cannot be read, or when the
/// rows cannot be written.
pub fn finish(out: &Path) -> Result<crate::record::parquet::Written, Error> {
    let folder = files::Folder::open(out);
    if !folder.stream().exists() {
        return Err(Error::misuse(
            folder.stream().display().to_string(),
            "there is no unfinished recording",
            "name the folder of a recorder that was killed",
        ));
    }
    let written = crate::record::parquet::finish(&folder.stream(), &folder.rows(), &[])
        .map_err(|error| files::failed(&folder.rows(), error))?;
    fs::remove_file(folder.stream()).map_err(|error| files::failed(&folder.stream(), error))?;
    Ok(written)
}
