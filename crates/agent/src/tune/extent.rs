//! The size of the timed products.

use std::time::Duration;

use vtax_sys::tree::Tree;
use vtax_tuner::log::{Log, LogError};
use vtax_tuner::search::trial::Trial;
use vtax_tuner::trials::GemmTrial;
use vtax_tuner::{Element, Parameters, Precision, Processor};

use crate::facts::available_bytes;
use crate::tune::TuneOptions;

/// Timings that a search needs at least for a useful result.
const SEARCH_TIMINGS: u32 = 500;
/// Timings of given parameters: four forms, six runs of each.
const GIVEN_TIMINGS: u32 = 30;
/// The size from which the speed is estimated, and the smallest that is timed.
const TRIED: usize = 96;
const SMALLEST: usize = 64;

/// The size to time, with a note where it is not the size that was asked for.
///
/// The size is smaller in a slow environment, and where there is less memory. A search that a log
/// continues keeps the log's size. Fails when the log cannot be written.
pub fn extent(
    options: &TuneOptions,
    processor: &Processor,
    start: Option<Parameters>,
    log: &mut Log,
) -> Result<(usize, Option<String>), LogError> {
    let asked = options.size;
    let (size, reason) = match log.size() {
        Some(size) => (size, "as in the log".to_owned()),
        None => smaller(options, processor, start),
    };
    if log.size().is_none() {
        log.write_size(size)?;
    }
    let note = (size != asked).then(|| format!("size {size} instead of {asked}: {reason}"));
    Ok((size, note))
}

fn smaller(
    options: &TuneOptions,
    processor: &Processor,
    start: Option<Parameters>,
) -> (usize, String) {
    let mut least = (options.size, String::new());
    if let Some(bytes) = available_bytes(&Tree::host()) {
        // Three matrices in half of the available memory.
        let size = root(bytes / 2 / 3 / 8, 2);
        least = least.min((size, format!("only {} MiB are available", bytes >> 20)));
    }
    let timings = match (options.cache_edge_runs, &options.given) {
        (Some(_), _) => return least,
        (None, Some(_)) => GIVEN_TIMINGS,
        (None, None) => SEARCH_TIMINGS,
    };
    let gflops = start
        .filter(|_| !options.forms.is_empty())
        .and_then(|start| match options.precisions[0] {
            Precision::Double => speed::<f64>(processor, &start, options.threads),
            Precision::Single => speed::<f32>(processor, &start, options.threads),
        });
    if let Some(gflops) = gflops {
        let each = options.budget / timings / jobs(options);
        let reason = format!(
            "{gflops:.2} GFLOP/s leave {:.0} ms for each",
            milliseconds(each)
        );
        least = least.min((affordable(gflops, each), reason));
    }
    (least.0.max(SMALLEST).min(options.size), least.1)
}

fn jobs(options: &TuneOptions) -> u32 {
    u32::try_from(options.precisions.len()).unwrap_or(1)
}

/// The speed of a small product; `None`: it cannot be timed.
fn speed<T: Element>(processor: &Processor, at: &Parameters, threads: usize) -> Option<f64> {
    let mut trial = GemmTrial::<T>::new(processor, TRIED, threads);
    trial.gflops(at).ok().map(|measured| measured.gflops_on_cpu)
}

/// Rows of the largest product that takes no longer than `each`.
fn affordable(gflops: f64, each: Duration) -> usize {
    let operations = gflops * 1e9 * each.as_secs_f64() / 2.0;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and saturating is right"
    )]
    let operations = operations as u64;
    root(operations, 3) / 8 * 8
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The whole part of a root.
fn root(value: u64, power: u32) -> usize {
    let (mut low, mut high) = (0_u64, 1 << 21);
    while high - low > 1 {
        let middle = low.midpoint(high);
        let fits = middle
            .checked_pow(power)
            .is_some_and(|whole| whole <= value);
        if fits {
            low = middle;
        } else {
            high = middle;
        }
    }
    usize::try_from(low).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_whole() {
        assert_eq!(
            [0, 1, 26, 27, 1 << 60].map(|cube| root(cube, 3)),
            [0, 1, 2, 3, 1 << 20]
        );
        assert_eq!(root(99, 2), 9);
    }

    #[test]
    fn a_slow_machine_times_smaller_products() {
        let each = Duration::from_millis(200);
        assert_eq!(affordable(100.0, each), 2152);
        assert_eq!(affordable(0.3, each), 304);
        assert_eq!(affordable(0.0, each), 0);
    }
}
