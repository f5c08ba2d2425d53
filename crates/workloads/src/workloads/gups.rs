//! `gups`: `RandomAccess` of HPC Challenge.
//!
//! The table, the update, the polynomial and the check are those of the HPC Challenge benchmark's
//! `RandomAccess` (HPCC 1.5.0, `RandomAccess/core_single_cpu.c` and `utility.c`;
//! <https://hpcchallenge.org/projectsfiles/hpcc/RandomAccess.html>).

use std::hint::black_box;

use serde_json::Map;

use crate::bound::Bound;
use crate::cast;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{HUGE, SEED, mem};
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::memory::map;
use vtax_sys::terminal::Error;

/// The primitive polynomial over GF(2) (HPCC `POLY`).
const POLYNOMIAL: u64 = 7;

/// Streams whose updates alternate, so that they do not depend on one another (HPCC: 128).
const STREAMS: usize = 128;

/// Updates between two looks at the clock.
const BATCH: u64 = 8192;

/// The tolerated percentage of wrong entries (HPCC: 1 %).
const TOLERATED_PERCENT: u64 = 1;

/// Random updates of a table.
#[derive(Debug)]
pub struct Gups;

static DESCRIPTION: Description = Description {
    name: "gups",
    summary: "RandomAccess of HPC Challenge: exclusive-ors random words of a table",
    stresses: "One dTLB miss per update, and a cache miss of data and page-table entries; walks \
               overlap, as updates do not depend on each other",
    unit: "updates",
    default_bound: Bound::Count(5_000_000),
    options: &[
        mem("16M", "Size of the table, rounded down to a power of two"),
        SEED,
        HUGE,
    ],
};

impl Workload for Gups {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let bytes = 1 << job.parameters.number("mem").ilog2();
        let seed = job.parameters.number("seed");
        let mut region = map(job, bytes, job.parameters.flag("huge"))?;
        let table = region.words_mut();
        begin(table);
        let mut streams = Streams::new(seed);
        let meter = Meter::start();
        while let Some(updates) = job.limit.grant(BATCH) {
            streams.update(black_box(table), updates);
        }
        let usage = meter.stop();
        let done = job.limit.done();
        let checksum = checksum(table);
        let errors = errors_after_undoing(table, seed, done);
        let size = cast::count(table.len());
        let mut details = Map::new();
        details.insert("table_words".into(), size.into());
        details.insert("errors".into(), errors.into());
        let gups = cast::float(done) / usage.wall.as_secs_f64() / 1e9;
        details.insert("gups".into(), gups.into());
        Ok(Outcome {
            usage,
            operations: done,
            checksum: Some(checksum),
            verified: is_tolerated(errors, size),
            details,
        })
    }
}

fn begin(table: &mut [u64]) {
    for (index, word) in table.iter_mut().enumerate() {
        *word = cast::count(index);
    }
}

fn checksum(table: &[u64]) -> u64 {
    let mut checksum = Checksum::new();
    checksum.extend(table.iter().copied());
    checksum.value()
}

fn is_tolerated(errors: u64, size: u64) -> bool {
    errors * 100 <= size * TOLERATED_PERCENT
}

/// Do the same updates again, which undoes them, and count the words that differ from before.
fn errors_after_undoing(table: &mut [u64], seed: u64, updates: u64) -> u64 {
    Streams::new(seed).update(table, updates);
    let indices = (0..).zip(table.iter());
    cast::count(indices.filter(|(index, word)| index != *word).count())
}

/// The next word of the sequence (HPCC: `(ran << 1) ^ ((s64Int) ran < 0 ? POLY : 0)`).
fn next(word: u64) -> u64 {
    (word << 1) ^ if word >> 63 == 1 { POLYNOMIAL } else { 0 }
}

/// The word at a position of the sequence that begins with 1 (HPCC `HPCC_starts`).
///
/// A word is a power of x modulo the polynomial, so squaring doubles the position.
fn word_at(position: u64) -> u64 {
    (0..64 - position.leading_zeros())
        .rev()
        .fold(1, |word, bit| {
            let doubled = square(word);
            if position >> bit & 1 == 1 {
                next(doubled)
            } else {
                doubled
            }
        })
}

/// The square of a polynomial over GF(2): the sum of x^(2 n) for each of its x^n.
fn square(word: u64) -> u64 {
    let mut power = 1;
    let mut sum = 0;
    for bit in 0..64 {
        if word >> bit & 1 == 1 {
            sum ^= power;
        }
        power = next(next(power));
    }
    sum
}

/// The streams of updates, and whose turn it is.
struct Streams {
    words: [u64; STREAMS],
    turn: usize,
}

impl Streams {
    /// Streams begin 2^33 words apart, and seeds 2^40, in a sequence of more than 2^60 words (HPCC
    /// `PERIOD`); seeds are taken modulo 2^20.
    fn new(seed: u64) -> Self {
        let begin = (seed % (1 << 20)) << 40;
        let stream = |number| word_at(begin + (cast::count(number) << 33));
        Self {
            words: std::array::from_fn(stream),
            turn: 0,
        }
    }

    /// Update a table, whose length is a power of two.
    fn update(&mut self, table: &mut [u64], updates: u64) {
        let mask = table.len() - 1;
        for _ in 0..updates {
            let word = &mut self.words[self.turn];
            *word = next(*word);
            table[cast::index(*word) & mask] ^= *word;
            self.turn = (self.turn + 1) % STREAMS;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn updated(updates: u64) -> Vec<u64> {
        let mut table = vec![0; 1 << 12];
        begin(&mut table);
        Streams::new(1).update(&mut table, updates);
        table
    }

    proptest! {
        #[test]
        fn a_position_is_reached_by_steps(position in 0..5000_u64, further in 0..200_u64) {
            let stepped = (0..further).fold(word_at(position), |word, _| next(word));
            prop_assert_eq!(stepped, word_at(position + further));
        }
    }

    #[test]
    fn the_sequence_repeats_after_its_period() {
        // HPCC's PERIOD.
        assert_eq!(word_at(1_317_624_576_693_539_401), 1);
        assert_ne!(word_at(1_317_624_576_693_539_401 / 7), 1);
    }

    #[test]
    fn updates_done_again_are_undone() {
        let mut table = updated(10_000);
        assert_ne!(table[5], 5);
        assert_eq!(errors_after_undoing(&mut table, 1, 10_000), 0);
    }

    #[test]
    fn wrong_words_are_counted_and_more_than_one_percent_fails() {
        let mut table = updated(10_000);
        for word in table.iter_mut().take(41) {
            *word ^= 1;
        }
        let errors = errors_after_undoing(&mut table, 1, 10_000);
        assert_eq!(errors, 41);
        assert!(!is_tolerated(41, 4096) && is_tolerated(40, 4096));
    }

    #[test]
    fn another_seed_is_another_sequence() {
        let mut table = updated(10_000);
        assert!(errors_after_undoing(&mut table, 2, 10_000) > 1000);
    }
}
