//! Moves rows from the rings to the stream.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::clock::Pair;
use crate::record::difference::{Differences, Start, Total};
use crate::record::files::{self, Folder};
use crate::record::page_samples::PageSamples;
use crate::record::perf::Reading;
use crate::record::plan::Columns;
use crate::record::reference::throttling::Throttling;
use crate::record::ring::Rings;
use crate::record::rotation::{Groups, Schedule, Switch};
use crate::record::row::{Layer, Row};
use crate::record::stacks::samples::Samples;
use crate::record::stillness::Watched;
use crate::record::stream::{self, Batch, Lengths, Stream};
use crate::record::vcpu_clock::{self, VcpuClock};
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

/// What rows have besides their columns.
#[derive(Debug, Default)]
pub struct Beside {
    /// What others publish.
    pub samples: Vec<PageSamples>,
    /// The stacks of the rows, if they are wanted.
    pub stacks: Option<Samples>,
}

/// Takes rows from the rings and appends them to the stream.
#[derive(Debug)]
pub struct Consumer {
    rings: Rings,
    cpus: u32,
    differences: Differences,
    schedule: Schedule,
    watched: Watched,
    batch: Batch,
    stream: Option<Stream>,
    path: std::path::PathBuf,
    clock: Pair,
    widest: u64,
    machines: BTreeSet<u32>,
    vcpu_clocks: BTreeMap<vcpu_clock::Key, VcpuClock>,
    rows: Vec<Row>,
    dropped: u64,
    remainder: Vec<u64>,
    samples: Vec<PageSamples>,
    /// The stacks of the rows, if they are wanted.
    pub stacks: Option<Samples>,
}

impl Consumer {
    /// Begin the stream.
    ///
    /// Fails when the stream's file cannot be made.
    pub fn new(
        rings: Rings,
        columns: &Columns,
        groups: &Groups,
        start: Start,
        clock: Pair,
        folder: &Folder,
        Beside { samples, stacks }: Beside,
    ) -> Result<Self, Error> {
        let mut names = columns.names();
        names.extend(samples.iter().flat_map(PageSamples::names).cloned());
        let mut schema = stream::schema(&names);
        if stacks.is_some() {
            schema = stream::with_stacks(&schema);
        }
        let lengths = Lengths {
            instructions: columns.find("hw.instructions"),
            cycles: columns.find("hw.cycles"),
        };
        let path = folder.stream();
        let stream = Stream::create(&path, &schema).map_err(|error| files::failed(&path, error))?;
        Ok(Self {
            cpus: rings.cpus(),
            rings,
            differences: Differences::new(columns.locations.clone(), columns.groups(groups), start),
            schedule: Schedule::default(),
            watched: Watched::new(|name| columns.find(name)),
            batch: Batch::new(schema, lengths),
            stream: Some(stream),
            path,
            clock,
            widest: clock.within,
            machines: BTreeSet::new(),
            vcpu_clocks: BTreeMap::new(),
            rows: Vec::new(),
            dropped: 0,
            remainder: vec![0; columns.locations.len()],
            samples,
            stacks,
        })
    }

    /// Take all available rows, those of all CPUs in the order of time.
    pub fn drain(&mut self, throttling: &mut Throttling) {
        for samples in &mut self.samples {
            samples.sample();
        }
        for cpu in 0..self.cpus {
            self.rings.take(cpu, |row| self.rows.push(row));
        }
        throttling.take();
        if self.rows.is_empty() {
            return;
        }
        let now = Pair::now();
        self.widest = self.widest.max(now.within);
        // Stable: rows of one CPU stay in the order of their sequence.
        self.rows.sort_by_key(|row| row.time_ns);
        // The buffer's memory is kept for the next time; in between the buffer is empty.
        let mut rows = std::mem::take(&mut self.rows);
        for mut row in rows.drain(..) {
            self.identify(&mut row);
            let tsc = self.clock.tsc_at(&now, row.time_ns);
            self.schedule.row(row.cpu);
            let throttled_ns = throttling.before(row.cpu, row.time_ns);
            let mut interval = self.differences.take(row);
            interval.throttled_ns = throttled_ns;
            self.watched.take(&interval);
            if let Some(stacks) = &mut self.stacks {
                interval.stack = Some(stacks.add(&interval));
            }
            for samples in &mut self.samples {
                let counted = samples.up_to(interval.row.time_ns);
                interval.columns.extend(counted);
            }
            self.batch.push(&interval, tsc);
        }
        self.rows = rows;
        self.clock = now;
    }

    /// The programs know a virtual machine's process only inside KVM.
    fn identify(&mut self, row: &mut Row) {
        if row.vm != 0 {
            self.machines.insert(row.vm);
        } else if self.machines.contains(&row.pid) {
            row.vm = row.pid;
        }
        if row.vm != 0 && row.layer == Some(Layer::HostUser) {
            row.layer = Some(Layer::VmmUser);
        }
    }

    /// Add processes that have a virtual machine, whether or not it has entered its guest yet.
    pub fn know_machines(&mut self, processes: impl Iterator<Item = u32>) {
        self.machines.extend(processes);
    }

    /// A CPU went offline. What its events have counted is kept by column for its next rows, whose
    /// events begin at 0.
    pub fn cpu_left(&mut self, cpu: u32, reference: Reading, readings: &[(usize, Reading)]) {
        self.differences.leave(cpu, reference.enabled_ns);
        for (column, reading) in readings {
            self.rings.carry(cpu, *column, *reading);
        }
    }

    /// A CPU came online: its next row begins at this moment.
    pub fn cpu_came(&mut self, cpu: u32, now_ns: u64) {
        self.differences.resume(cpu, now_ns);
    }

    /// Groups of counters were enabled or disabled.
    pub fn switched(&mut self, switches: &[Switch]) {
        for switch in switches {
            self.differences.switch(*switch);
        }
    }

    /// The schedule of turns, from the rows of all CPUs.
    pub fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    /// The number of turns that have ended, and the time of all rows.
    pub fn turns(&self) -> (u64, u64) {
        (self.schedule.turns(), self.differences.length_ns())
    }

    /// Counters that must move whenever a CPU works.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Write the rows taken so far.
    ///
    /// Fails when the stream's file cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        if !self.machines.is_empty() {
            // Read at this point, not at the end: a machine may be gone by then.
            let machines = &self.machines;
            vcpu_clock::refresh(&Tree::host(), &mut self.vcpu_clocks, |vm| {
                machines.contains(&vm)
            });
        }
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        stream
            .flush(&mut self.batch)
            .map_err(|error| files::failed(&self.path, error))
    }

    /// Do enough rows wait to be written?
    pub fn full(&self) -> bool {
        self.batch.full()
    }

    /// Take the last rows, and count what was lost and what came after them.
    pub fn take_last(&mut self, throttling: &mut Throttling) {
        self.drain(throttling);
        for cpu in 0..self.cpus {
            let (overflows, dropped) = self.rings.overflows(cpu);
            self.differences.end(cpu, overflows);
            self.dropped += dropped;
            let rest = self.differences.remainder(cpu, &self.rings.values(cpu));
            for (sum, rest) in self.remainder.iter_mut().zip(rest) {
                *sum += rest;
            }
        }
    }

    /// End the stream. Fails when it cannot be written.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.stream.take().map_or(Ok(()), |stream| {
            stream
                .finish()
                .map_err(|error| files::failed(&self.path, error))
        })
    }

    /// Numbers of rows taken, of rows lost, and of lost rows that found the ring full.
    pub fn rows(&self) -> (u64, u64, u64) {
        let (rows, lost) = self.differences.rows();
        (rows, lost, self.dropped)
    }

    /// For each column, the total of its rows, and what was counted after the last row of each CPU.
    pub fn totals(&self) -> impl Iterator<Item = (&Total, u64)> {
        self.differences
            .totals()
            .iter()
            .zip(self.remainder.iter().copied())
    }

    /// What others publish: the guest's page, the applications of this machine.
    pub fn samples(&self) -> &[PageSamples] {
        &self.samples
    }

    /// How the time stamp counters of the virtual machines' CPUs follow this machine's.
    pub fn vcpu_clocks(&self) -> impl Iterator<Item = &VcpuClock> {
        self.vcpu_clocks.values()
    }

    /// The last pair of clocks, and the largest `within` of all pairs: the bound of the error of
    /// `tsc`.
    pub fn clock(&self) -> (Pair, u64) {
        (self.clock, self.widest)
    }

    /// Processes of the virtual machines that ran or were targets.
    pub fn machines(&self) -> &BTreeSet<u32> {
        &self.machines
    }
}
