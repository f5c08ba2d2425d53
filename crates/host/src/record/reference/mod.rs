//! The reference event, which measures the length of intervals.

pub mod running;
pub mod throttling;

use std::time::Duration;

use nix::errno::Errno;
use perf_event_open_sys::bindings as perf;
use serde::Serialize;

use crate::record::availability::Machine;
use crate::record::interval::Interval;
use crate::record::perf::{Request, hold};
use vtax_sys::terminal::Error;

/// The default lengths of intervals; both are about the same on a current core.
const DEFAULT_INSTRUCTIONS: u64 = 50_000_000;
const DEFAULT_TIME: Duration = Duration::from_millis(10);

/// The event that ends an interval: a perf event when it overflows, or one that programs count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// Retired instructions, counted by hardware.
    Instructions,
    /// Time that the targets' tasks run.
    TaskClock,
    /// Time on each CPU.
    WallClock,
    /// An event that programs count, by its name.
    #[serde(untagged)]
    Counted(String),
}

impl Reference {
    /// The perf event that is opened for this reference, if it is one.
    pub fn request(&self, interval: &Interval) -> Option<Request> {
        let (kind, config) = match self {
            Self::Instructions => (perf::PERF_TYPE_HARDWARE, perf::PERF_COUNT_HW_INSTRUCTIONS),
            // The event belongs to a CPU, whose task clock counts the same time. But after each
            // stop by perf's throttling, the task clock counts once more all time since the CPU's
            // events were last scheduled (`task_clock_event_start` begins at the old time of their
            // context).
            Self::TaskClock | Self::WallClock => {
                (perf::PERF_TYPE_SOFTWARE, perf::PERF_COUNT_SW_CPU_CLOCK)
            }
            Self::Counted(_) => return None,
        };
        Some(Request {
            kind,
            config: u64::from(config),
            period: Some(interval.period()),
            ..Request::default()
        })
    }

    /// The reference clock for a recording of targets, or of everything.
    fn clock(of_targets: bool) -> Self {
        if of_targets {
            Self::TaskClock
        } else {
            Self::WallClock
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub reference: Reference,
    pub interval: Interval,
    /// What the user should know: counters exist, but others hold them.
    pub warning: Option<String>,
}

/// Why retired instructions cannot be the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lack {
    /// This machine cannot count retired instructions.
    Absent(String),
    /// Others hold the counters at the moment.
    Crowded(String),
}

/// The best reference event of this machine: retired instructions, else task clock, else wall clock.
///
/// Fails when `asked` counts instructions and this machine cannot count them, or not on all CPUs
/// because others hold the counters.
pub fn choose(
    machine: &Machine,
    cpus: &[u32],
    asked: Option<Interval>,
    of_targets: bool,
) -> Result<Choice, Error> {
    let instructions = Request {
        kind: perf::PERF_TYPE_HARDWARE,
        config: u64::from(perf::PERF_COUNT_HW_INSTRUCTIONS),
        ..Request::default()
    };
    let holds = |cpu| hold(&[instructions], cpu).map(|held| held.is_some());
    decide(asked, of_targets, || {
        let absent = machine.cannot_open(instructions).map(Lack::Absent);
        absent.or_else(|| crowded(cpus, holds).map(Lack::Crowded))
    })
}

/// The first CPU on which the event has no counter, although it opens.
fn crowded(cpus: &[u32], mut holds: impl FnMut(u32) -> Result<bool, Errno>) -> Option<String> {
    cpus.iter().find_map(|cpu| match holds(*cpu) {
        // The kernel gives this error for a CPU that has just gone offline.
        Ok(true) | Err(Errno::ENODEV) => None,
        Ok(false) => Some(format!(
            "others (perf, the NMI watchdog, guests) hold all counters of CPU {cpu} that can count \
             them"
        )),
        Err(errno) => Some(format!("perf_event_open on CPU {cpu}: {}", errno.desc())),
    })
}

fn decide(
    asked: Option<Interval>,
    of_targets: bool,
    lacks_instructions: impl FnOnce() -> Option<Lack>,
) -> Result<Choice, Error> {
    let chosen = |reference, interval, warning| Choice {
        reference,
        interval,
        warning,
    };
    let clock = Reference::clock(of_targets);
    match asked {
        Some(interval @ Interval::Time(_)) => return Ok(chosen(clock, interval, None)),
        Some(Interval::Events { event, count }) => {
            let reference = Reference::Counted(event.clone());
            return Ok(chosen(reference, Interval::Events { event, count }, None));
        }
        Some(Interval::Instructions(_)) | None => {}
    }
    let default = Interval::Instructions(DEFAULT_INSTRUCTIONS);
    match (lacks_instructions(), asked) {
        (None, asked) => {
            let interval = asked.unwrap_or(default);
            Ok(chosen(Reference::Instructions, interval, None))
        }
        // Another unit instead would give a number that nobody asked for.
        (Some(Lack::Absent(reason) | Lack::Crowded(reason)), Some(interval)) => {
            Err(Error::failure(
                format!("--every {interval}"),
                reason,
                "give a time, such as --every 1ms",
            ))
        }
        (Some(lack), None) => {
            let warning = match lack {
                Lack::Absent(_) => None,
                Lack::Crowded(reason) => Some(format!(
                    "intervals are times, not numbers of instructions: {reason}"
                )),
            };
            Ok(chosen(clock, Interval::Time(DEFAULT_TIME), warning))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_come_first_then_the_clock_that_fits() {
        let present = || None;
        let absent = || Some(Lack::Absent("no PMU".to_owned()));
        let reference = |asked, targets, lacks: &dyn Fn() -> Option<Lack>| {
            decide(asked, targets, lacks).map(|choice| {
                assert_eq!(choice.warning, None);
                choice.reference
            })
        };
        let time = Some(Interval::Time(Duration::from_millis(1)));
        assert_eq!(
            reference(None, true, &present).unwrap(),
            Reference::Instructions
        );
        assert_eq!(
            reference(None, true, &absent).unwrap(),
            Reference::TaskClock
        );
        assert_eq!(
            reference(None, false, &absent).unwrap(),
            Reference::WallClock
        );
        assert_eq!(
            reference(time, false, &present).unwrap(),
            Reference::WallClock
        );
        let events: Interval = "kvm.exits:7".parse().unwrap();
        let counted = reference(Some(events), true, &absent).unwrap();
        assert_eq!(serde_json::to_value(&counted).unwrap(), "kvm.exits");
        let error = reference(Some(Interval::Instructions(50_000_000)), true, &absent).unwrap_err();
        assert!(error.to_string().contains("--every 1ms"), "{error}");
    }

    #[test]
    fn counters_that_others_hold_are_no_reference() {
        let holds = |cpu| match cpu {
            0 => Ok(true),
            1 => Err(Errno::ENODEV),
            _ => Ok(false),
        };
        assert_eq!(crowded(&[0, 1], holds), None);
        let reason = crowded(&[0, 1, 2, 3], holds).unwrap();
        assert!(reason.contains("hold all counters of CPU 2"), "{reason}");
        let denied = crowded(&[0], |_| Err(Errno::EACCES)).unwrap();
        assert!(denied.contains("CPU 0"), "{denied}");

        let lacks = || Some(Lack::Crowded(reason.clone()));
        let choice = decide(None, false, lacks).unwrap();
        assert_eq!(choice.reference, Reference::WallClock);
        assert!(choice.warning.unwrap().contains(&reason));
        let asked = Some(Interval::Instructions(50_000_000));
        let error = decide(asked, false, lacks).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        let said = error.to_string();
        assert!(said.contains("--every") && said.contains(&reason), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
