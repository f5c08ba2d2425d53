//! The caches that the model starts from, at their measured size, not the claimed size.

use std::thread;
use std::time::Duration;

use vtax_tuner::Processor;
use vtax_tuner::log::{Log, LogError, Start, StartSource};
use vtax_tuner::statistics::FEWEST;

use crate::probe::{self, Probe, Probed};
use crate::tune::TuneOptions;

/// The longest measurement; on an idle machine it takes half of this.
const LONGEST: Duration = Duration::from_millis(1500);
/// One part in this many of a short search's budget.
const PART_OF_BUDGET: u32 = 10;
/// No L1 is smaller than this.
const SMALLEST: u64 = 4 << 10;

/// What a search of GEMM starts from, with a note where that is what the processor claims.
///
/// `None`: there is no such search. A search that a log continues keeps the log's start. Fails when
/// the log cannot be written.
pub fn start(
    options: &TuneOptions,
    processor: &Processor,
    log: &mut Log,
) -> Result<(Option<Start>, Option<String>), LogError> {
    let searches = options.given.is_none() && options.cache_edge_runs.is_none();
    if !searches || options.forms.is_empty() {
        return Ok((None, None));
    }
    let (start, reason) = match log.start() {
        Some(start) => (start, "as in the log".to_owned()),
        None => match measured(options.budget) {
            Ok(start) => (start, String::new()),
            Err(reason) => (claimed(processor), reason),
        },
    };
    if log.start().is_none() {
        log.write_start(start)?;
    }
    let claimed = start.from == StartSource::Claimed;
    let note = claimed.then(|| format!("starts from the claimed cache sizes: {reason}"));
    Ok((Some(start), note))
}

/// The processor with these cache sizes.
pub fn with(processor: &Processor, start: Start) -> Processor {
    Processor {
        l1_bytes: start.l1_bytes,
        l2_bytes: start.l2_bytes,
        ..processor.clone()
    }
}

fn claimed(processor: &Processor) -> Start {
    Start {
        l1_bytes: processor.l1_bytes,
        l2_bytes: processor.l2_bytes,
        from: StartSource::Claimed,
    }
}

/// Measure the caches in a separate thread, which alone stays on the CPU that the probes choose.
fn measured(budget: Duration) -> Result<Start, String> {
    let options = probe::ProbeOptions {
        probes: vec![Probe::L1, Probe::L2],
        runs: FEWEST,
        time: LONGEST.min(budget / PART_OF_BUDGET),
    };
    let probes = thread::Builder::new().spawn(move || probe::measure(&options));
    let probes = probes.map_err(|error| vtax_sys::reason(&error))?;
    let found = probes.join().map_err(|_| "the probes failed")?;
    of(&found.map_err(|error| error.to_string())?)
}

fn of(found: &Probed) -> Result<Start, String> {
    let l1 = size(found, "l1_size")?;
    let l2 = size(found, "l2_size")?;
    if l1 < SMALLEST || l2 <= l1 {
        return Err(format!("the probes found {l1} and {l2} bytes"));
    }
    Ok(Start {
        l1_bytes: Some(l1),
        l2_bytes: Some(l2),
        from: StartSource::Probes,
    })
}

fn size(found: &Probed, name: &str) -> Result<u64, String> {
    let missing = || format!("no probe of {name}");
    let probe = found.probes.iter().find(|probe| probe.name == name);
    let probe = probe.ok_or_else(missing)?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and saturating is right"
    )]
    let bytes = probe.value.map(|bytes| bytes as u64);
    bytes.ok_or_else(|| {
        let reason = probe.reason.clone().unwrap_or_default();
        format!("{name}: {reason}")
    })
}

#[cfg(test)]
mod tests {
    use vtax_tuner::statistics::Interval;

    use super::*;
    use crate::probe::quantity::Name;

    fn probed(sizes: [Result<f64, &str>; 2]) -> Probed {
        let names = [Name::new("l1_size", "bytes"), Name::new("l2_size", "bytes")];
        let each = names.into_iter().zip(sizes).map(|(name, size)| {
            let found = size.map(|value| Interval {
                value,
                low: value,
                high: value,
                runs: FEWEST,
            });
            name.alone(found.map_err(str::to_owned))
        });
        Probed {
            agent: "1",
            cpu: None,
            runs: FEWEST,
            budget_s: 1.0,
            seconds: 1.0,
            counter: "tsc",
            counter_hz: 1e9,
            probes: each.collect(),
            curves: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn plausible_sizes_are_taken() {
        let found = of(&probed([Ok(49152.0), Ok(2_097_152.0)])).unwrap();
        assert_eq!(
            (found.l1_bytes, found.l2_bytes, found.from),
            (Some(49152), Some(2 << 20), StartSource::Probes)
        );
    }

    #[test]
    fn what_no_processor_has_is_not_taken_and_says_why() {
        for (sizes, said) in [
            ([Ok(2048.0), Ok(65536.0)], "2048 and 65536 bytes"),
            ([Ok(32768.0), Ok(32768.0)], "32768 and 32768 bytes"),
            ([Ok(32768.0), Err("one step")], "l2_size: one step"),
            ([Err("flat"), Ok(65536.0)], "l1_size: flat"),
        ] {
            let reason = of(&probed(sizes)).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
