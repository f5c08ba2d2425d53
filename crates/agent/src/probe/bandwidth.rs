//! How fast one thread reads and copies memory that no cache holds.

use std::hint::black_box;

use crate::probe::arena::Arena;
use crate::probe::meter::{Budget, Meter, float, once};
use crate::probe::quantity::{Name, Quantity};
use vtax_tuner::statistics::Interval;

const READ: Name = Name::new("memory_bandwidth_read", "GB/s");
const COPY: Name = Name::new("memory_bandwidth_copy", "GB/s");

/// Bandwidth of reading and of copying. A run goes once over the whole arena; a copy counts its
/// reads and its writes.
pub fn bandwidth(arena: &mut Arena, meter: &Meter, budget: &Budget) -> Vec<Quantity> {
    let bytes = float(arena.words().len() as u64 * 8);
    let rate = |ticks: f64| bytes / meter.nanoseconds(ticks);
    // Pages that were never written may all be one page of zeros: fill them.
    arena.words_mut().fill(1);
    let half = Budget::new(budget.runs, budget.left() / 2);
    let reads = half.repeat(|| rate(once(|| read(arena.words()))));
    let copies = budget.repeat(|| rate(once(|| copy(arena.words_mut()))));
    vec![
        READ.alone(Interval::of(reads)),
        COPY.alone(Interval::of(copies)),
    ]
}

/// Both quantities, where there is no memory to measure in.
pub fn absent(reason: &str) -> Vec<Quantity> {
    [READ, COPY]
        .map(|name| name.alone(Err(reason.to_owned())))
        .to_vec()
}

pub fn read(words: &[u64]) {
    let all = words.iter().fold(0, |all, word| all ^ word);
    black_box(all);
}

/// Copy one half over the other: it moves as many bytes as the arena has, half of them read and
/// half written.
fn copy(words: &mut [u64]) {
    let (to, from) = words.split_at_mut(words.len() / 2);
    to.copy_from_slice(&from[..to.len()]);
    black_box(to);
}
