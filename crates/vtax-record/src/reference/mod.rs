//! The reference event: what an interval is measured in.

use std::time::Duration;

use perf_event_open_sys::bindings as perf;
use serde::Serialize;

use crate::availability::Machine;
use crate::interval::Interval;
use crate::perf::Request;
use crate::sources::Exclude;
use vtax_cli::Error;

/// Intervals when nobody says how long: about as long as one another on a core of today.
const DEFAULT_INSTRUCTIONS: u64 = 50_000_000;
const DEFAULT_TIME: Duration = Duration::from_millis(10);

/// The event whose overflow ends an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// Retired instructions, of the hardware.
    Instructions,
    /// Time that the targets' tasks run.
    TaskClock,
    /// Time on each CPU.
    WallClock,
}

impl Reference {
    /// What is opened for it.
    pub fn request(self, interval: Interval) -> Request {
        let (kind, config) = match self {
            Self::Instructions => (perf::PERF_TYPE_HARDWARE, perf::PERF_COUNT_HW_INSTRUCTIONS),
            Self::TaskClock => (perf::PERF_TYPE_SOFTWARE, perf::PERF_COUNT_SW_TASK_CLOCK),
            Self::WallClock => (perf::PERF_TYPE_SOFTWARE, perf::PERF_COUNT_SW_CPU_CLOCK),
        };
        Request {
            kind,
            config: u64::from(config),
            period: Some(interval.period()),
            exclude: Exclude::default(),
            pinned: false,
        }
    }

    /// The clock for a recording of targets, or of everything.
    fn clock(of_targets: bool) -> Self {
        if of_targets {
            Self::TaskClock
        } else {
            Self::WallClock
        }
    }
}

/// The best reference event of this machine: retired instructions, else task clock, else wall clock.
///
/// Fails when `asked` counts instructions and this machine cannot count them.
pub fn choose(
    machine: &Machine,
    asked: Option<Interval>,
    of_targets: bool,
) -> Result<(Reference, Interval), Error> {
    let instructions = perf::PERF_COUNT_HW_INSTRUCTIONS;
    let lacks = || {
        machine.cannot_open(
            perf::PERF_TYPE_HARDWARE,
            u64::from(instructions),
            Exclude::default(),
        )
    };
    decide(asked, of_targets, lacks)
}

fn decide(
    asked: Option<Interval>,
    of_targets: bool,
    lacks_instructions: impl FnOnce() -> Option<String>,
) -> Result<(Reference, Interval), Error> {
    let clock = Reference::clock(of_targets);
    match asked {
        Some(interval @ Interval::Time(_)) => Ok((clock, interval)),
        Some(interval @ Interval::Instructions(_)) => match lacks_instructions() {
            None => Ok((Reference::Instructions, interval)),
            // Another unit in its place would be a number that nobody asked for.
            Some(reason) => Err(Error::failure(
                format!("--every {interval}"),
                reason,
                "give a time, such as --every 1ms",
            )),
        },
        None => Ok(match lacks_instructions() {
            None => (
                Reference::Instructions,
                Interval::Instructions(DEFAULT_INSTRUCTIONS),
            ),
            Some(_) => (clock, Interval::Time(DEFAULT_TIME)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_come_first_then_the_clock_that_fits() {
        let present = || None;
        let absent = || Some("no PMU".to_owned());
        let reference = |asked, targets, lacks: &dyn Fn() -> Option<String>| {
            decide(asked, targets, lacks).map(|(reference, _)| reference)
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
        let error = reference(Some(Interval::Instructions(50_000_000)), true, &absent).unwrap_err();
        assert!(error.to_string().contains("--every 1ms"), "{error}");
    }
}
