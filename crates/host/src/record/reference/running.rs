//! How long the reference events had their counters.

use std::collections::BTreeMap;

use crate::record::perf::Reading;

/// The user is warned below this share of the time. An event is rescheduled whenever another one is
/// enabled on its CPU, which takes a microsecond.
pub const WHOLE: f64 = 0.999;

/// How long the reference event of each CPU was enabled, and how long it counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Running(BTreeMap<u32, Reading>);

impl Running {
    /// Add the last reading of a CPU's event; a CPU that was offline has had more than one event.
    pub fn add(&mut self, cpu: u32, reading: Reading) {
        let sum = self.0.entry(cpu).or_default();
        sum.enabled_ns += reading.enabled_ns;
        sum.running_ns += reading.running_ns;
    }

    /// The share of the time of all CPUs in which the event counted; `None` when it was never
    /// enabled.
    pub fn share(&self) -> Option<f64> {
        let (enabled, running) = self.0.values().fold((0, 0), |(enabled, running), one| {
            (enabled + one.enabled_ns, running + one.running_ns)
        });
        share(Reading {
            enabled_ns: enabled,
            running_ns: running,
            ..Reading::default()
        })
    }

    /// What the user should know: the event took turns with other users' events.
    pub fn warning(&self) -> Option<String> {
        let shares = self
            .0
            .iter()
            .filter_map(|(cpu, one)| Some((*cpu, share(*one)?)));
        let (cpu, least) = shares.min_by(|a, b| a.1.total_cmp(&b.1))?;
        if least >= WHOLE {
            return None;
        }
        Some(format!(
            "the reference event had its counter in {:.1} % of the time, on CPU {cpu} in {:.1} % \
             (others use the PMU too): what was executed in the rest of it is in no interval, and \
             its rows are longer than asked for",
            100.0 * self.share()?,
            100.0 * least
        ))
    }
}

#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn share(reading: Reading) -> Option<f64> {
    let enabled = reading.enabled_ns;
    (enabled > 0).then(|| reading.running_ns as f64 / enabled as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(enabled_ns: u64, running_ns: u64) -> Reading {
        Reading {
            count: 0,
            enabled_ns,
            running_ns,
        }
    }

    #[test]
    fn an_event_that_took_turns_is_said_with_its_share() {
        let mut running = Running::default();
        assert_eq!((running.share(), running.warning()), (None, None));
        running.add(0, reading(1_000_000, 1_000_000));
        running.add(1, reading(1_000_000, 999_500));
        assert_eq!(running.warning(), None, "it was scheduled again, at once");
        running.add(1, reading(2_000_000, 500));
        assert_eq!(running.share(), Some(0.5));
        let warning = running.warning().unwrap();
        assert!(warning.contains("in 50.0 % of the time"), "{warning}");
        assert!(warning.contains("on CPU 1 in 33.3 %"), "{warning}");
    }

    #[test]
    fn an_event_that_never_counted_is_said() {
        let mut running = Running::default();
        running.add(3, reading(1_000_000, 0));
        assert!(running.warning().unwrap().contains("in 0.0 % of the time"));
    }
}
