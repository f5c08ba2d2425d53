//! The real-time clock beside the kernel's clocks.
//!
//! It counts whole seconds, so only the moment at which it changes says more: that edge is waited
//! for, before and after the rest of the measurement.

use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;
use vtax_sys::tree::Tree;

use crate::clocks::reasons::{Reasons, keep};
use crate::clocks::source::{REALTIME, TIMER};

const FOLDER: &str = "/sys/class/rtc";
const RESOLUTION_NS: u64 = 1_000_000_000;
/// Between two looks at the clock; a look at a CMOS clock takes part of a millisecond.
const PAUSE: Duration = Duration::from_millis(1);
/// An edge comes within a second, unless the clock stands still.
const LONGEST_NS: u64 = 1_500_000_000;

/// `None` where nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rtc {
    /// The driver's name of the clock.
    pub name: Option<String>,
    pub resolution_ns: Option<u64>,
    /// Its time less `CLOCK_REALTIME` at the first edge: whole hours where it keeps local time.
    pub offset_ns: Option<i64>,
    /// Its seconds between the two edges.
    pub seconds: Option<u64>,
    /// How much faster than these clocks it went.
    pub against_realtime_ppm: Option<f64>,
    pub against_monotonic_ppm: Option<f64>,
    /// How far both may be off, as an edge lies between two looks.
    pub within_ppm: Option<f64>,
    /// Why a field is `None`.
    pub reasons: Reasons,
}

/// The moment at which the clock began a second, by other clocks: before the last look at the second
/// before, and after the first look at the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    seconds: u64,
    realtime_ns: [u64; 2],
    monotonic_ns: [u64; 2],
}

/// Wait for the next edge, 1.5 s at most. Fails, with the reason in words, without a clock.
pub fn edge(tree: &Tree) -> Result<Edge, String> {
    let name = first(tree)?;
    let file = format!("{FOLDER}/{name}/since_epoch");
    next(
        || tree.number(&file),
        || Some((REALTIME.read()?, TIMER.read()?)),
    )
    .map_err(|why| format!("{name} {why}"))
}

/// The kernel's first real-time clock.
fn first(tree: &Tree) -> Result<String, String> {
    let none = "the kernel shows no real-time clock in /sys/class/rtc";
    tree.names(FOLDER).into_iter().next().ok_or(none.into())
}

fn next(
    read: impl Fn() -> Option<u64>,
    now: impl Fn() -> Option<(u64, u64)>,
) -> Result<Edge, &'static str> {
    let silent = "cannot be read";
    let mut before = now().ok_or(silent)?;
    let end = before.1.saturating_add(LONGEST_NS);
    let begin = read().ok_or(silent)?;
    loop {
        sleep(PAUSE);
        let look = now().ok_or(silent)?;
        let seconds = read().ok_or(silent)?;
        if seconds != begin {
            let after = now().ok_or(silent)?;
            return Ok(Edge {
                seconds,
                realtime_ns: [before.0, after.0],
                monotonic_ns: [before.1, after.1],
            });
        }
        if look.1 >= end {
            return Err("stood still for 1.5 s");
        }
        before = look;
    }
}

/// What two edges say of the clock.
pub fn compare(tree: &Tree, begin: Result<Edge, String>, end: Result<Edge, String>) -> Rtc {
    let mut reasons = Reasons::new();
    let name = first(tree).map(|clock| {
        let name = tree.text(&format!("{FOLDER}/{clock}/name"));
        name.unwrap_or(clock)
    });
    let both = begin.clone().and_then(|begin| Ok((begin, end?)));
    let rates = both.and_then(|(begin, end)| {
        rates(begin, end).ok_or_else(|| "a clock stood still or stepped back".to_owned())
    });
    let mut rate = |field, at: fn(Rates) -> f64| keep(&mut reasons, field, rates.clone().map(at));
    let against_realtime_ppm = rate("against_realtime_ppm", |rates| rates.realtime_ppm);
    let against_monotonic_ppm = rate("against_monotonic_ppm", |rates| rates.monotonic_ppm);
    let within_ppm = rate("within_ppm", |rates| rates.within_ppm);
    Rtc {
        resolution_ns: keep(
            &mut reasons,
            "resolution_ns",
            name.clone().map(|_| RESOLUTION_NS),
        ),
        name: keep(&mut reasons, "name", name),
        offset_ns: keep(&mut reasons, "offset_ns", begin.map(offset_ns)),
        seconds: keep(&mut reasons, "seconds", rates.map(|rates| rates.seconds)),
        against_realtime_ppm,
        against_monotonic_ppm,
        within_ppm,
        reasons,
    }
}

#[derive(Debug, Clone, Copy)]
struct Rates {
    seconds: u64,
    realtime_ppm: f64,
    monotonic_ppm: f64,
    within_ppm: f64,
}

/// An edge's time by the clock beside it: the middle of the two looks.
fn middle([before, after]: [u64; 2]) -> u64 {
    before + after.saturating_sub(before) / 2
}

fn offset_ns(edge: Edge) -> i64 {
    let own = i128::from(edge.seconds) * i128::from(RESOLUTION_NS);
    let offset = own - i128::from(middle(edge.realtime_ns));
    i64::try_from(offset).unwrap_or(if offset > 0 { i64::MAX } else { i64::MIN })
}

#[allow(
    clippy::cast_precision_loss,
    reason = "the error is far below that of the readings"
)]
fn rates(begin: Edge, end: Edge) -> Option<Rates> {
    let seconds = end
        .seconds
        .checked_sub(begin.seconds)
        .filter(|passed| *passed > 0)?;
    let own = seconds as f64 * RESOLUTION_NS as f64;
    let faster = |first: [u64; 2], last: [u64; 2]| {
        let passed = middle(last)
            .checked_sub(middle(first))
            .filter(|passed| *passed > 0)?;
        Some((own / passed as f64 - 1.0) * 1e6)
    };
    let half = |edge: Edge| edge.monotonic_ns[1].saturating_sub(edge.monotonic_ns[0]) as f64 / 2.0;
    Some(Rates {
        seconds,
        realtime_ppm: faster(begin.realtime_ns, end.realtime_ns)?,
        monotonic_ppm: faster(begin.monotonic_ns, end.monotonic_ns)?,
        within_ppm: (half(begin) + half(end)) / own * 1e6,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn at(seconds: u64, realtime: u64, monotonic: u64) -> Edge {
        Edge {
            seconds,
            realtime_ns: [realtime - 500_000, realtime + 500_000],
            monotonic_ns: [monotonic - 500_000, monotonic + 500_000],
        }
    }

    #[test]
    fn an_edge_lies_between_the_looks_around_it() {
        let looks = Cell::new(0);
        let read = || {
            looks.set(looks.get() + 1);
            Some(if looks.get() < 5 { 100 } else { 101 })
        };
        let time = Cell::new(0);
        let now = || {
            time.set(time.get() + 10);
            Some((1_000 + time.get(), time.get()))
        };
        let found = next(read, now).unwrap();
        assert_eq!(found.seconds, 101);
        // The fourth look was after 40, the fifth before 60.
        assert_eq!(found.monotonic_ns, [40, 60]);
        assert_eq!(found.realtime_ns, [1_040, 1_060]);
    }

    #[test]
    fn a_clock_that_stands_still_is_given_up() {
        let time = Cell::new(0);
        let now = || {
            time.set(time.get() + 600_000_000);
            Some((time.get(), time.get()))
        };
        assert_eq!(next(|| Some(7), now), Err("stood still for 1.5 s"));
        assert_eq!(next(|| None, || Some((0, 0))), Err("cannot be read"));
    }

    #[test]
    fn a_clock_that_is_fast_and_ahead() {
        let second = RESOLUTION_NS;
        // Ten of its seconds in 9.999 s: 100 ppm fast; an hour ahead.
        let begin = at(3_700, 100 * second, 50 * second);
        let end = at(3_710, 110 * second - 1_000_000, 60 * second);
        let found = compare(&Tree::at("/nonexistent"), Ok(begin), Ok(end));
        assert_eq!(
            (found.offset_ns, found.seconds),
            (Some(3_600_000_000_000), Some(10))
        );
        assert!((found.against_realtime_ppm.unwrap() - 100.01).abs() < 0.01);
        assert!(found.against_monotonic_ppm.unwrap().abs() < 1e-6);
        assert!(
            (found.within_ppm.unwrap() - 100.0).abs() < 1e-6,
            "a millisecond of ten seconds"
        );
        assert!(found.reasons["name"].contains("no real-time clock"));
    }

    #[test]
    fn without_a_clock_each_field_has_the_reason() {
        let tree = Tree::at("/nonexistent");
        let found = compare(&tree, edge(&tree), edge(&tree));
        assert_eq!(found.reasons.len(), 7);
        assert!(found.reasons["seconds"].contains("no real-time clock"));
        assert_eq!(
            rates(at(9, 2_000_000, 2_000_000), at(9, 3_000_000, 3_000_000)).map(|_| ()),
            None
        );
    }
}
