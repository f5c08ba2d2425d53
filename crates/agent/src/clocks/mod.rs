//! The clocks of this machine: `vtax-agent clocks`.
//!
//! What each clock claims, does and costs, and what the machine takes from a loop that only reads
//! one. A field that is null has its reason beside it, in `reasons`; nothing is guessed.
//! docs/audit.md describes the fields. Each part is bounded in time.

pub(crate) mod cost;
pub(crate) mod distribution;
mod histogram;
pub(crate) mod limits;
pub mod moment;
mod noise;
mod path;
mod reasons;
mod rtc;
pub(crate) mod source;
mod steps;
mod timers;
pub mod timing;
pub(crate) mod tsc;
mod turns;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use vtax_sys::clock::tick_ns;
use vtax_sys::pinning;
use vtax_sys::tree::Tree;

use crate::VERSION;
use crate::clocks::distribution::Distribution;
use crate::clocks::limits::Limits;
use crate::clocks::moment::Moment;
use crate::clocks::noise::Noise;
use crate::clocks::path::Path;
use crate::clocks::reasons::{Reasons, keep};
use crate::clocks::rtc::Rtc;
use crate::clocks::source::{ClockReader, TIMER};
use crate::clocks::steps::{Backward, Steps};
use crate::clocks::timers::Timers;
use crate::clocks::tsc::Tsc;
use crate::facts::{Facts, RealProbe, gather};

/// For steps: at 10 ms a tick, eight ticks and some slack for when the thread had to wait.
const STEP_LIMITS: Limits = Limits {
    usual: Duration::from_millis(10),
    longest: Duration::from_millis(150),
};
/// For each cost, and for the turns of two CPUs.
const LIMITS: Limits = Limits {
    usual: Duration::from_millis(40),
    longest: Duration::from_millis(120),
};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clocks {
    pub agent: &'static str,
    pub clocksource: ClockSource,
    /// The processor's counter.
    pub tsc: Tsc,
    pub clocks: BTreeMap<&'static str, Clock>,
    /// The kernel's timers, and the devices that interrupt for them.
    pub timers: Timers,
    /// The real-time clock over the measurement.
    pub rtc: Rtc,
    pub steal: Steal,
    /// The time that a loop loses.
    pub noise: Noise,
}

/// The kernel's clock source, as in the facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClockSource {
    pub current: Option<String>,
    pub available: Vec<String>,
    /// Why a field is `None`.
    pub reasons: Reasons,
}

/// The steal clock, as in the facts, and its resolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Steal {
    /// `None`: nothing could steal time, or there is no way to tell.
    pub present: Option<bool>,
    pub source: String,
    /// The resolution of the steal time in `/proc/stat`.
    pub resolution_ns: Option<u64>,
    /// Why a field is `None`.
    pub reasons: Reasons,
}

/// One clock; `None` with a reason where nothing is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clock {
    /// The unit of steps: `ns`, or `ticks` of the processor's counter.
    pub unit: &'static str,
    /// What `clock_getres` claims.
    pub resolution_ns: Option<u64>,
    /// The smallest step between two readings that is not zero.
    pub smallest_step: Option<u64>,
    /// How many steps were not zero.
    pub changes: Option<u64>,
    /// The cost of one reading, from means of batches.
    pub cost_ns: Option<Distribution>,
    /// The cost of the system call that reads the same clock.
    pub syscall_cost_ns: Option<Distribution>,
    pub path: Path,
    /// How `path` was found.
    pub path_decided_by: String,
    /// Steps back between readings on one CPU.
    pub backward_same_cpu: Option<Backward>,
    /// Steps back between readings on two CPUs in turn.
    pub backward_across_cpus: Option<Backward>,
    /// Why a field is `None`.
    pub reasons: Reasons,
}

/// The CPUs that the measurement runs on; an error is the reason why there is none.
struct Place {
    pinned: Result<usize, String>,
    two: Result<[usize; 2], String>,
}

/// Measure everything; `noise` is how long the noise is watched.
///
/// The calling thread stays pinned to one CPU.
pub fn measure(noise: Duration) -> Clocks {
    let tree = Tree::host();
    let facts = gather(&tree);
    let place = Place::take();
    let raw = source::RAW;
    let second = rtc::edge(&tree);
    let begin = Moment::now(raw);
    let clocks = all(&place);
    let noise = noise::watch(noise, place.pinned, &facts, &tree);
    let tsc = tsc::read(&facts, &RealProbe, begin, Moment::now(raw));
    Clocks {
        agent: VERSION,
        clocksource: clock_source(&facts),
        tsc,
        clocks,
        timers: timers::read(&tree),
        rtc: rtc::compare(&tree, second, rtc::edge(&tree)),
        steal: steal(&facts),
        noise,
    }
}

impl Place {
    /// Pin this thread to the first CPU that it may use.
    fn take() -> Self {
        let cpus = pinning::cpus();
        let pinned = cpus.clone().and_then(|cpus| {
            let first = *cpus.first().ok_or("no CPU may be used")?;
            pinning::stay_on(first).map(|()| first)
        });
        let two = cpus.and_then(|cpus| match cpus[..] {
            [first, .., last] => Ok([first, last]),
            _ => Err("this process may use only one CPU".to_owned()),
        });
        Self { pinned, two }
    }
}

fn all(place: &Place) -> BTreeMap<&'static str, Clock> {
    let sources = ClockReader::all();
    let answers = path::without_calls(&sources);
    let timer = steps::find(|| TIMER.read(), STEP_LIMITS).and_then(|steps| steps.smallest);
    let measured = sources.iter().enumerate().map(|(index, source)| {
        let answers = answers.clone().map(|answers| answers[index]);
        (source.name, one(*source, answers, timer, place))
    });
    measured.collect()
}

/// `answers`: whether the source can be read without system calls.
fn one(
    source: ClockReader,
    answers: Result<bool, String>,
    timer_step_ns: Option<u64>,
    place: &Place,
) -> Clock {
    let mut reasons = Reasons::new();
    let steps = steps::find(|| source.read(), STEP_LIMITS).ok_or("it cannot be read here");
    let readable = steps.map(drop).map_err(str::to_owned);
    let cost = |read: &dyn Fn() -> Option<u64>| {
        let step = timer_step_ns.ok_or("CLOCK_MONOTONIC stood still")?;
        cost::measure(read, step, LIMITS)
    };
    let cost_ns = readable.clone().and_then(|()| cost(&|| source.read()));
    let call = readable.clone().and_then(|()| {
        let same = "there is no other call for it".to_owned();
        source.has_call().then_some(()).ok_or(same)?;
        cost(&|| source.read_by_call())
    });
    let cost_ns = keep(&mut reasons, "cost_ns", cost_ns);
    let syscall_cost_ns = keep(&mut reasons, "syscall_cost_ns", call);
    let (path, path_decided_by) = match &readable {
        Ok(()) => decide(source, answers, cost_ns, syscall_cost_ns),
        Err(reason) => (Path::Unknown, reason.clone()),
    };
    let changed = steps.map_err(str::to_owned).and_then(|steps| {
        let still = format!("it stood still for {} ms", STEP_LIMITS.longest.as_millis());
        steps.smallest.ok_or(still)
    });
    let same = place.pinned.clone().and(steps.map_err(str::to_owned));
    let across = readable.and_then(|()| across(source, place));
    Clock {
        unit: source.unit(),
        resolution_ns: keep(&mut reasons, "resolution_ns", source.resolution_ns()),
        smallest_step: keep(&mut reasons, "smallest_step", changed),
        changes: keep(
            &mut reasons,
            "changes",
            steps.map(|steps: Steps| steps.changes),
        ),
        cost_ns,
        syscall_cost_ns,
        path,
        path_decided_by,
        backward_same_cpu: keep(
            &mut reasons,
            "backward_same_cpu",
            same.map(|same| same.backward),
        ),
        backward_across_cpus: keep(&mut reasons, "backward_across_cpus", across),
        reasons,
    }
}

fn decide(
    source: ClockReader,
    answers: Result<bool, String>,
    cost: Option<Distribution>,
    call: Option<Distribution>,
) -> (Path, String) {
    if source.is_instruction() {
        return (Path::Instruction, "it is one".into());
    }
    match answers {
        Ok(true) => (
            Path::Vdso,
            "it answers where system calls are refused".into(),
        ),
        Ok(false) => (
            Path::Syscall,
            "it fails where system calls are refused".into(),
        ),
        Err(reason) => (
            path::by_cost(cost, call),
            format!("costs compared ({reason})"),
        ),
    }
}

fn across(source: ClockReader, place: &Place) -> Result<Backward, String> {
    if source.is_of_one_thread() {
        return Err("each thread has its own".into());
    }
    turns::pass(|| source.read(), place.two.clone()?, LIMITS)
}

fn clock_source(facts: &Facts) -> ClockSource {
    let mut reasons = Reasons::new();
    let current = facts.clock.clocksource.clone();
    let current = current.ok_or("the kernel does not show it in /sys");
    ClockSource {
        current: keep(&mut reasons, "current", current),
        available: facts.clock.available.clone(),
        reasons,
    }
}

fn steal(facts: &Facts) -> Steal {
    let mut reasons = Reasons::new();
    let present = facts.clock.steal_clock;
    let source = facts.clock.steal_reason.clone();
    let resolution = (present == Some(true)).then(tick_ns);
    Steal {
        present: keep(
            &mut reasons,
            "present",
            present.ok_or_else(|| source.clone()),
        ),
        resolution_ns: keep(
            &mut reasons,
            "resolution_ns",
            resolution.ok_or("no steal clock"),
        ),
        source,
        reasons,
    }
}
