//! Times operations in batches.

use std::cell::OnceCell;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use vtax_sys::pinning;
use vtax_tuner::statistics::median;
use vtax_workloads::Meter;

use crate::clocks::cost::{MOST_BATCHES, Rules, enough_ns, sample, too_coarse};
use crate::clocks::distribution::Distribution;
use crate::clocks::limits::Limits;
use crate::clocks::timing;
use crate::prices::folder::Folder;
use crate::prices::tree::Tree;
use crate::probe::arena::Arena;
use crate::probe::meter::float;

const SHORTEST_BATCH_NS: u64 = 10_000;
/// A batch takes at least as long as N readings of the timer; one reading is taken off.
const READINGS: u64 = 30;
/// The median of three is not one that was disturbed; long operations have fewer.
const FEWEST: u32 = 3;
/// Empty timings of which the median is what timing itself takes.
const EMPTY: usize = 11;

/// What durations are measured with.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Timer {
    /// The smallest step of `CLOCK_MONOTONIC`; `None`: it stood still.
    step_ns: Option<u64>,
    /// What a timing of nothing shows, which is taken off each timing.
    reading_ns: u64,
}

impl Timer {
    fn look() -> Self {
        Self {
            step_ns: timing::look().step_ns,
            reading_ns: reading_ns(),
        }
    }

    /// The least time of a batch.
    fn enough_ns(&self) -> u64 {
        let shortest_ns = SHORTEST_BATCH_NS.max(READINGS * self.reading_ns);
        enough_ns(shortest_ns, self.step_ns.unwrap_or(0))
    }
}

/// What a timing of nothing shows now: gVisor's clock, for one, is slow in its first second.
fn reading_ns() -> u64 {
    let empty = (0..EMPTY).map(|_| float(nanoseconds(Meter::start().stop().wall)));
    median(empty.collect()).map_or(0, whole)
}

/// Adds up what the timed parts of a batch take.
#[derive(Debug, Default)]
pub struct Watch {
    pub ns: u64,
    faults: u64,
    switches: u64,
    reading_ns: u64,
}

impl Watch {
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let meter = Meter::start();
        let done = work();
        let used = meter.stop();
        self.ns += nanoseconds(used.wall).saturating_sub(self.reading_ns);
        self.faults += used.minor_faults;
        self.switches += used.voluntary_switches;
        done
    }
}

/// The price of one operation.
#[derive(Debug, Serialize)]
pub struct Price {
    /// The size, where it depends on the machine.
    #[serde(skip)]
    pub bytes: Option<u64>,
    /// The median over batches.
    ns: f64,
    /// The lower quartile.
    low: f64,
    /// The upper quartile.
    high: f64,
    batches: usize,
    /// Minor faults of one operation.
    faults: f64,
    /// Voluntary context switches of one operation.
    switches: f64,
}

impl Price {
    /// The price of an operation in memory of this size.
    pub fn of(self, bytes: u64) -> Self {
        Self {
            bytes: Some(bytes),
            ..self
        }
    }

    /// The price from batches, each with its number of operations.
    fn from(batches: &[(Watch, u64)]) -> io::Result<Self> {
        let done = batches.iter().filter(|(_, operations)| *operations > 0);
        let means = done.map(|(watch, operations)| float(watch.ns) / float(*operations));
        let found = Distribution::of(means.collect()).filter(|found| found.median > 0.0);
        let found = found.ok_or_else(|| io::Error::other("no batch could be used"))?;
        let all = batches.iter().map(|(_, operations)| operations).sum();
        let each = |count: fn(&Watch) -> u64| {
            float(batches.iter().map(|(watch, _)| count(watch)).sum()) / float(all)
        };
        Ok(Self {
            bytes: None,
            ns: found.median,
            low: found.p25,
            high: found.p75,
            batches: found.n,
            faults: each(|watch| watch.faults),
            switches: each(|watch| watch.switches),
        })
    }
}

/// What operations need to be measured.
#[derive(Debug)]
pub struct Bench {
    pub timer: Timer,
    /// Time for all operations.
    time: Duration,
    limits: Limits,
    /// The most batches of this operation.
    pub most: usize,
    /// Memory that more than one operation needs.
    pub arena: Option<Arena>,
    folder: Result<Folder, String>,
    /// Looked for when it is needed first.
    tree: OnceCell<Result<Tree, String>>,
    /// The CPU of this thread.
    cpu: Result<usize, String>,
    /// The CPUs that this thread could use before.
    cpus: Vec<usize>,
}

impl Bench {
    /// Files are made in a new folder in `parent`, or where `Folder::usual` makes it. This thread
    /// stays on one CPU.
    pub fn new(time: Duration, parent: Option<&Path>) -> Self {
        let cpus = pinning::cpus().unwrap_or_default();
        Self {
            cpu: pinning::stay_on_last(),
            cpus,
            timer: Timer::look(),
            time,
            limits: Limits {
                usual: time,
                longest: time,
            },
            most: MOST_BATCHES,
            arena: None,
            folder: parent
                .map_or_else(Folder::usual, Folder::make)
                .map_err(|error| vtax_sys::reason(&error)),
            tree: OnceCell::new(),
        }
    }

    /// Begin with an operation that should take this time.
    pub fn begin(&mut self, share: Duration) {
        let least = FEWEST * Duration::from_nanos(self.timer.enough_ns());
        self.limits.usual = share.max(least);
        self.limits.longest = FEWEST * self.limits.usual;
        self.most = MOST_BATCHES;
    }

    /// How long the preparation of one operation may take.
    pub fn patience(&self) -> Duration {
        self.time / 3
    }

    pub fn folder(&self) -> io::Result<&Folder> {
        let refused = |reason| io::Error::other(format!("no folder could be made: {reason}"));
        self.folder.as_ref().map_err(refused)
    }

    /// Files of the system.
    pub fn tree(&self) -> io::Result<&Tree> {
        let look = || Tree::look(self.time / 8).map_err(|error| vtax_sys::reason(&error));
        let found = self.tree.get_or_init(look).as_ref();
        found.map_err(|reason| io::Error::other(reason.clone()))
    }

    /// A file of this length for reading and writing.
    pub fn file(&self, bytes: usize) -> io::Result<File> {
        self.folder()?.file(bytes)
    }

    /// The CPU of this thread.
    pub fn cpu(&self) -> io::Result<usize> {
        self.cpu.clone().map_err(io::Error::other)
    }

    /// Another CPU.
    pub fn other_cpu(&self) -> io::Result<usize> {
        let this = self.cpu()?;
        let other = self.cpus.iter().find(|cpu| **cpu != this).copied();
        other.ok_or_else(|| io::Error::other("this process may use only one CPU"))
    }

    /// Measure batches. `batch` does at least as many operations as it is told, times them, and
    /// returns how many it did; 0: the batch does not count.
    pub fn measure(
        &self,
        mut batch: impl FnMut(&mut Watch, u64) -> io::Result<u64>,
    ) -> io::Result<Price> {
        let step_ns = self.timer.step_ns;
        let step_ns = step_ns.ok_or_else(|| io::Error::other("CLOCK_MONOTONIC stood still"))?;
        let enough_ns = self.timer.enough_ns();
        if FEWEST * Duration::from_nanos(enough_ns) > self.time / 10 {
            return Err(io::Error::other(too_coarse(step_ns)));
        }
        let rules = Rules {
            smallest: 1,
            fewest: FEWEST as usize,
            most: self.most,
            enough_ns,
            limits: self.limits,
        };
        let reading_ns = reading_ns();
        let timed = |size: u32| -> io::Result<_> {
            let mut watch = Watch {
                reading_ns,
                ..Watch::default()
            };
            let operations = batch(&mut watch, size.into())?;
            Ok((watch.ns, (watch, operations)))
        };
        let found = sample(timed, &rules)?.batches;
        let batches: Vec<(Watch, u64)> = found.into_iter().map(|(_, batch)| batch).collect();
        Price::from(&batches)
    }

    /// An operation that may fail.
    pub fn each<T, E: Into<io::Error>>(
        &self,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> io::Result<Price> {
        self.groups(1, || {
            work().map(|done| drop(black_box(done))).map_err(Into::into)
        })
    }

    /// An operation that cannot fail.
    pub fn always<T>(&self, mut work: impl FnMut() -> T) -> io::Result<Price> {
        self.each(|| Ok::<_, io::Error>(work()))
    }

    /// Work of `group` operations.
    pub fn groups(
        &self,
        group: u64,
        mut work: impl FnMut() -> io::Result<()>,
    ) -> io::Result<Price> {
        self.measure(|watch, count| {
            let groups = count.div_ceil(group);
            watch.time(|| (0..groups).try_for_each(|_| work()))?;
            Ok(groups * group)
        })
    }

    /// Work of `group` operations, which alone is timed, after `prepare`; what that returns ends
    /// after the work. `state` is for both.
    pub fn staged<S, T>(
        &self,
        group: u64,
        mut state: S,
        mut prepare: impl FnMut(&mut S) -> io::Result<T>,
        mut work: impl FnMut(&mut S, &mut T) -> io::Result<()>,
    ) -> io::Result<Price> {
        self.measure(|watch, count| {
            let groups = count.div_ceil(group);
            for _ in 0..groups {
                let mut prepared = prepare(&mut state)?;
                watch.time(|| work(&mut state, &mut prepared))?;
            }
            Ok(groups * group)
        })
    }

    /// An operation that makes something; it ends, untimed, after each `group`.
    pub fn making<T>(
        &self,
        group: u64,
        mut make: impl FnMut() -> io::Result<T>,
    ) -> io::Result<Price> {
        let room = usize::try_from(group).unwrap_or(0);
        let work = |(): &mut (), made: &mut Vec<T>| {
            for _ in 0..group {
                made.push(make()?);
            }
            Ok(())
        };
        self.staged(group, (), |()| Ok(Vec::with_capacity(room)), work)
    }
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds of a reading, which are positive"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench() -> Bench {
        let mut bench = Bench::new(Duration::from_secs(1), Some(&std::env::temp_dir()));
        bench.begin(Duration::from_millis(20));
        bench
    }

    #[test]
    fn a_price_holds_what_one_operation_waits() {
        let wait = || std::thread::sleep(Duration::from_micros(200));
        let price = bench().always(wait).unwrap();
        assert!(price.ns >= 200_000.0, "{price:?}");
        assert!(price.low <= price.ns && price.ns <= price.high, "{price:?}");
        assert!(price.switches > 0.0, "{price:?}");
    }

    #[test]
    fn an_operation_longer_than_its_part_is_measured_once() {
        let wait = || std::thread::sleep(Duration::from_millis(70));
        assert_eq!(bench().always(wait).unwrap().batches, 1);
    }

    #[test]
    fn what_is_prepared_is_not_timed() {
        let untimed = Duration::from_millis(5);
        let begin = std::time::Instant::now();
        let mut timed = Vec::new();
        let found = bench().measure(|watch, _| {
            std::thread::sleep(untimed);
            watch.time(|| std::thread::sleep(Duration::from_millis(1)));
            timed.push(Duration::from_nanos(watch.ns));
            Ok(1)
        });
        assert!(found.unwrap().ns > 0.0 && !timed.is_empty());
        let prepared = untimed * u32::try_from(timed.len()).unwrap();
        assert!(timed.iter().sum::<Duration>() + prepared <= begin.elapsed());
    }

    #[test]
    fn what_fails_has_its_reason_and_a_coarse_timer_gives_no_price() {
        let mut bench = bench();
        let failed = bench.each(|| Err::<(), _>(nix::errno::Errno::EPERM));
        assert_eq!(
            vtax_sys::reason(&failed.unwrap_err()),
            "Operation not permitted"
        );
        assert!(
            bench
                .measure(|_, _| Ok(0))
                .unwrap_err()
                .to_string()
                .contains("no batch")
        );
        bench.timer.step_ns = Some(1_000_000);
        let coarse = bench.always(|| 1).unwrap_err();
        assert!(coarse.to_string().contains("too coarse"), "{coarse}");
    }
}
