//! Time that a loop on one CPU loses to everything else.
//!
//! The loop reads `CLOCK_MONOTONIC` back to back. Each reading is the same work, so a reading that
//! takes much longer than the others was interrupted; the interruption is called a detour.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;
use vtax_sys::clock::{monotonic_ns, tick_ns};
use vtax_sys::tree::Tree;

use crate::clocks::histogram::{Bin, Histogram};
use crate::clocks::reasons::{Reasons, keep};
use crate::facts::Facts;
use crate::steal;

/// The shortest interrupt takes longer; a cache miss in the reading does not.
const SHORTEST_DETOUR_NS: u64 = 200;
/// Where a reading itself takes long, its own variation stays below this many usual steps.
const USUAL_STEPS: u64 = 4;
/// Steps from which the usual step is found.
const SAMPLE: usize = 1_001;
/// A clock that ticks every 10 ms is not sampled for a thousand ticks.
const SAMPLE_LIMIT_NS: u64 = 100_000_000;

/// What the loop saw; `None` with a reason where nothing is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noise {
    /// The clock that was read.
    pub clock: &'static str,
    /// The CPU that the loop was pinned to.
    pub cpu: Option<usize>,
    /// How long the loop ran.
    pub seconds: f64,
    /// How often the loop read the clock.
    pub readings: u64,
    /// The median of the steps between two readings that are not zero.
    pub usual_step_ns: Option<u64>,
    /// Longer steps are detours.
    pub threshold_ns: Option<u64>,
    pub detours: Option<u64>,
    /// The time of all detours beyond the usual step.
    pub lost_ns: Option<u64>,
    /// The lost time as a share of all time.
    pub lost_share: Option<f64>,
    pub largest_ns: Option<u64>,
    /// Detours by their length.
    pub histogram: Option<Vec<Bin>>,
    /// How often the thread was preempted.
    pub involuntary_switches: Option<i64>,
    /// How often the thread waited.
    pub voluntary_switches: Option<i64>,
    /// Time stolen from this CPU meanwhile.
    pub steal_ns: Option<u64>,
    /// Why a field is `None`.
    pub reasons: Reasons,
}

/// What the kernel counts while the loop runs.
struct Meanwhile {
    switches: Result<(i64, i64), String>,
    steal_ticks: Result<u64, String>,
}

/// Steps beyond the threshold.
#[derive(Debug, Clone, PartialEq)]
struct Detours {
    usual_ns: u64,
    threshold_ns: u64,
    count: u64,
    lost_ns: u64,
    largest_ns: u64,
    histogram: Histogram,
}

impl Detours {
    fn new(usual_ns: u64) -> Self {
        Self {
            usual_ns,
            threshold_ns: SHORTEST_DETOUR_NS.max(USUAL_STEPS.saturating_mul(usual_ns)),
            count: 0,
            lost_ns: 0,
            largest_ns: 0,
            histogram: Histogram::new(),
        }
    }

    #[inline]
    fn add(&mut self, step_ns: u64) {
        if step_ns > self.threshold_ns {
            self.detour(step_ns);
        }
    }

    #[cold]
    fn detour(&mut self, step_ns: u64) {
        self.count += 1;
        self.lost_ns += step_ns - self.usual_ns;
        self.largest_ns = self.largest_ns.max(step_ns);
        self.histogram.add(step_ns);
    }
}

/// Run the loop on this thread, which the caller has pinned to `cpu` if possible.
pub fn watch(length: Duration, cpu: Result<usize, String>, facts: &Facts, tree: &Tree) -> Noise {
    let mut reasons = Reasons::new();
    let counted = |cpu: &Result<usize, String>| Meanwhile::now(cpu, facts, tree);
    let usual = usual_step_ns(monotonic_ns);
    let before = counted(&cpu);
    let begin = monotonic_ns();
    // Without a usual step there are no detours, but the loop runs its full time all the same.
    let mut detours = Detours::new(*usual.as_ref().unwrap_or(&u64::MAX));
    let readings = spin(monotonic_ns, length, &mut detours);
    let passed_ns = monotonic_ns().saturating_sub(begin);
    let (switches, steal_ns) = before.until(&counted(&cpu));
    let seen = keep(&mut reasons, "usual_step_ns", usual).map(|_| detours);
    if seen.is_none() {
        for field in [
            "threshold_ns",
            "detours",
            "lost_ns",
            "lost_share",
            "histogram",
        ] {
            reasons.insert(field, "the usual step is not known".into());
        }
    }
    let largest = seen
        .as_ref()
        .map(|seen| seen.largest_ns)
        .filter(|largest| *largest > 0);
    let involuntary = switches.clone().map(|(involuntary, _)| involuntary);
    let voluntary = switches.map(|(_, voluntary)| voluntary);
    Noise {
        clock: "CLOCK_MONOTONIC",
        cpu: keep(&mut reasons, "cpu", cpu),
        seconds: seconds(passed_ns),
        readings,
        usual_step_ns: seen.as_ref().map(|seen| seen.usual_ns),
        threshold_ns: seen.as_ref().map(|seen| seen.threshold_ns),
        detours: seen.as_ref().map(|seen| seen.count),
        lost_ns: seen.as_ref().map(|seen| seen.lost_ns),
        lost_share: seen.as_ref().map(|seen| share(seen.lost_ns, passed_ns)),
        largest_ns: keep(
            &mut reasons,
            "largest_ns",
            largest.ok_or("no detour was seen"),
        ),
        histogram: seen.map(|seen| seen.histogram.bins()),
        involuntary_switches: keep(&mut reasons, "involuntary_switches", involuntary),
        voluntary_switches: keep(&mut reasons, "voluntary_switches", voluntary),
        steal_ns: keep(&mut reasons, "steal_ns", steal_ns),
        reasons,
    }
}

impl Meanwhile {
    fn now(cpu: &Result<usize, String>, facts: &Facts, tree: &Tree) -> Self {
        let switches = match facts.virtualization.kind {
            "gvisor" => Err("gVisor does not count the switches of a process".into()),
            _ => getrusage(UsageWho::RUSAGE_THREAD)
                .map(|used| {
                    (
                        used.involuntary_context_switches(),
                        used.voluntary_context_switches(),
                    )
                })
                .map_err(|errno| format!("getrusage: {}", errno.desc())),
        };
        let steal_ticks = match (facts.clock.steal_clock, cpu) {
            (Some(true), Ok(cpu)) => {
                steal::ticks(tree, &[*cpu]).ok_or_else(|| "/proc/stat does not show it".into())
            }
            (Some(true), Err(reason)) => Err(format!("the loop has no CPU of its own: {reason}")),
            _ => Err(facts.clock.steal_reason.clone()),
        };
        Self {
            switches,
            steal_ticks,
        }
    }

    /// Switches (involuntary, voluntary) and stolen nanoseconds from then to `later`.
    fn until(self, later: &Self) -> (Result<(i64, i64), String>, Result<u64, String>) {
        let switches = self.switches.and_then(|(involuntary, voluntary)| {
            let later = later.switches.clone()?;
            Ok((later.0 - involuntary, later.1 - voluntary))
        });
        let steal_ns = self.steal_ticks.and_then(|ticks| {
            let later = later.steal_ticks.clone()?;
            // Kernels have let it step back.
            let passed = later.checked_sub(ticks).ok_or("stolen time stepped back")?;
            Ok(passed * tick_ns())
        });
        (switches, steal_ns)
    }
}

/// The median of the first steps that are not zero; the error says that there were none.
fn usual_step_ns(mut now: impl FnMut() -> u64) -> Result<u64, String> {
    let begin = now();
    let (mut before, mut steps) = (begin, Vec::new());
    // No reading takes less than a nanosecond: the bound for a clock that stands still.
    for _ in 0..SAMPLE_LIMIT_NS {
        let after = now();
        steps.extend(after.checked_sub(before).filter(|step| *step > 0));
        before = after;
        if steps.len() >= SAMPLE || after.saturating_sub(begin) >= SAMPLE_LIMIT_NS {
            break;
        }
    }
    steps.sort_unstable();
    let middle = steps.get(steps.len() / 2);
    middle
        .copied()
        .ok_or_else(|| "CLOCK_MONOTONIC stood still".into())
}

/// Read the clock for this long; returns how often it was read.
fn spin(mut now: impl FnMut() -> u64, length: Duration, detours: &mut Detours) -> u64 {
    let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let begin = now();
    let mut before = begin;
    for readings in 1..=length_ns {
        let after = now();
        detours.add(after.saturating_sub(before));
        before = after;
        if after.saturating_sub(begin) >= length_ns {
            return readings;
        }
    }
    length_ns
}

#[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn share(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 {
        0.0
    } else {
        seconds(part_ns) / seconds(whole_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A clock whose readings are these steps apart, and then 25 ns.
    fn clock(steps: Vec<u64>) -> impl FnMut() -> u64 {
        let mut now = 1_000;
        let mut steps = std::iter::once(0).chain(steps).chain(std::iter::repeat(25));
        move || {
            now += steps.next().unwrap_or(0);
            now
        }
    }

    #[test]
    fn what_is_beyond_the_usual_is_lost() {
        let mut detours = Detours::new(25);
        let steps = vec![25, 30, 1_525, 200, 201, 25];
        let readings = spin(clock(steps), Duration::from_micros(10), &mut detours);
        assert_eq!(detours.threshold_ns, 200);
        assert_eq!((detours.count, detours.largest_ns), (2, 1_525));
        assert_eq!(detours.lost_ns, 1_500 + 176);
        assert_eq!(readings, 6 + (10_000_u64 - 2_006).div_ceil(25));
    }

    #[test]
    fn where_readings_are_slow_the_threshold_follows() {
        let usual = usual_step_ns(clock(vec![20_000; 2 * SAMPLE])).unwrap();
        assert_eq!(usual, 20_000);
        assert_eq!(Detours::new(usual).threshold_ns, 80_000);
        assert_eq!(usual_step_ns(clock(vec![0, 0, 9_000_000])).unwrap(), 25);
    }

    #[test]
    fn a_clock_that_stands_still_ends() {
        let mut detours = Detours::new(25);
        assert_eq!(spin(|| 7, Duration::from_micros(10), &mut detours), 10_000);
        assert_eq!(detours, Detours::new(25));
    }

    proptest! {
        #[test]
        fn no_more_is_lost_than_passed(steps in prop::collection::vec(0_u64..1_000_000, 0..200)) {
            let mut detours = Detours::new(25);
            let all: u64 = steps.iter().sum();
            for step in &steps {
                detours.add(*step);
            }
            prop_assert!(detours.lost_ns <= all);
            let counted: u64 = detours.histogram.bins().iter().map(|bin| bin.count).sum();
            prop_assert_eq!(counted, detours.count);
            prop_assert_eq!(detours.count, steps.iter().filter(|step| **step > 200).count() as u64);
        }
    }
}
