//! The processor and its memory, without the kernel.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vtax_sys::pinning::stay_on;
use vtax_sys::tree::Tree;

use crate::facts::available_bytes;
use crate::prices::measure::{Bench, Price};
use crate::prices::{Operation, operation};
use crate::probe::arena::{Arena, Pages};
use crate::probe::bandwidth;
use crate::probe::registers::{self, ADDS, UNROLL, Width, adds};
use crate::probe::shuffle::shuffle;
use crate::probe::unsafe_cycle::{Cycle, LOADS};

const LINE_WORDS: usize = 8;
const LARGE_BYTES: u64 = 64 << 20;
/// Bytes that are read at a time, and what the price is for.
const WINDOW_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 4096;
/// Operations of one price of the processor.
const THOUSAND: usize = 1_000;
/// More branches than a processor can learn.
const BRANCHES: u32 = 65_000;

pub const TABLE: &[Operation] = &[
    operation("atomic", "one thread", 0.0, |bench| {
        let word = AtomicU64::new(0);
        bench.always(|| add(&word))
    })
    .structural(),
    operation("atomic", "two threads on two CPUs", 0.0, contended),
    operation("user_integer", "1000 dependent additions", 0.0, |bench| {
        // A thousand rounds.
        bench.groups(ADDS.into(), || {
            adds(THOUSAND as u64);
            Ok(())
        })
    }),
    operation("user_float", "1000 dependent multiply-adds", 0.0, float),
    operation("user_branch", "1000 unpredictable branches", 0.0, branches),
    operation("user_call", "1000 indirect calls, in turn", 0.0, |bench| {
        bench.always(|| {
            let in_turn = (0..THOUSAND).map(|number| black_box(&STEPS)[number % STEPS.len()]);
            in_turn.fold(1, |value, step| step(value))
        })
    }),
    operation("user_mixed", "text, numbers and sorting", 0.0, |bench| {
        bench.always(|| mixed(1))
    }),
    operation("memory_random", "64 KiB", 0.0, |bench| {
        random(bench, &mut arena(64 << 10)?)
    }),
    operation("memory_random", "4 MiB", 0.0, |bench| {
        random(bench, &mut arena(4 << 20)?)
    }),
    operation("memory_random", "64 MiB", 0.0, |bench| {
        in_large(bench, random)
    }),
    operation("memory_read", "4 KiB of 64 MiB in order", 0.0, |bench| {
        in_large(bench, in_order)
    }),
];

fn add(word: &AtomicU64) {
    word.fetch_add(1, Ordering::SeqCst);
}

/// Batches count in which the other thread ran too.
fn contended(bench: &mut Bench) -> io::Result<Price> {
    let cpu = bench.other_cpu()?;
    let (word, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let contend = || {
        stay_on(cpu)?;
        while !over.load(Ordering::Relaxed) {
            add(&word);
        }
        Ok::<_, String>(())
    };
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, contend)?;
        let price = bench.measure(|watch, count| {
            let before = word.load(Ordering::SeqCst);
            watch.time(|| (0..count).for_each(|_| add(&word)));
            let others = word.load(Ordering::SeqCst) - before - count;
            Ok(if others >= count / 8 { count } else { 0 })
        });
        over.store(true, Ordering::Relaxed);
        let lost = |_| io::Error::other("the other thread failed");
        other.join().map_err(lost)?.map_err(io::Error::other)?;
        price.map_err(|_| io::Error::other("the other thread hardly ran"))
    })
}

fn float(bench: &mut Bench) -> io::Result<Price> {
    let none = || io::Error::other("it was not compiled for this processor");
    let run = registers::kernel(registers::Operation::MultiplyAdd, Width::Scalar, 1);
    let run = run.ok_or_else(none)?;
    bench.always(|| run(THOUSAND as u64 / u64::from(UNROLL)))
}

fn branches(bench: &mut Bench) -> io::Result<Price> {
    let mut numbers: Vec<u32> = (0..BRANCHES).collect();
    shuffle(&mut numbers);
    let mut thousands = numbers.chunks_exact(THOUSAND).cycle();
    bench.always(|| {
        let (mut even, mut odd) = (0, 0);
        for number in thousands.next().unwrap_or_default() {
            // Otherwise the compiler would choose without a branch.
            if number & 1 == 0 {
                even = black_box(even) + 1;
            } else {
                odd = black_box(odd) + 1;
            }
        }
        even + 2 * odd
    })
}

#[inline(never)]
fn step<const N: u64>(value: u64) -> u64 {
    value.wrapping_mul(N) ^ N
}

static STEPS: [fn(u64) -> u64; 8] = [
    step::<1>, step::<3>, step::<5>, step::<7>, step::<9>, step::<11>, step::<13>, step::<15>,
];

/// Memory of 64 MiB, or of an eighth of what is available.
fn touched(patience: Duration) -> io::Result<Arena> {
    let most = available_bytes(&Tree::host()).map_or(LARGE_BYTES, |all| all / 8);
    let bytes = usize::try_from(LARGE_BYTES.min(most)).unwrap_or(0);
    let begin = Instant::now();
    drop(arena(WINDOW_BYTES)?);
    let windows = u32::try_from(bytes / WINDOW_BYTES).unwrap_or(u32::MAX);
    if begin.elapsed() * windows > patience {
        return Err(io::Error::other(
            "its memory is too slow to fill: give more --seconds",
        ));
    }
    arena(bytes.max(WINDOW_BYTES))
}

fn arena(bytes: usize) -> io::Result<Arena> {
    Arena::new(bytes, Pages::Small).map_err(io::Error::other)
}

fn random(bench: &Bench, arena: &mut Arena) -> io::Result<Price> {
    let words = arena.words_mut();
    let bytes = 8 * words.len() as u64;
    let all = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let mut lines: Vec<u32> = (0..all).step_by(LINE_WORDS).collect();
    shuffle(&mut lines);
    let none = || io::Error::other("there is no memory for it");
    let mut cycle = Cycle::link(words, &lines).ok_or_else(none)?;
    let price = bench.groups(LOADS, || {
        cycle.follow(1);
        Ok(())
    })?;
    Ok(price.of(bytes))
}

fn in_order(bench: &Bench, arena: &mut Arena) -> io::Result<Price> {
    let words = arena.words();
    let mut windows = words.chunks_exact(WINDOW_BYTES / 8).cycle();
    let price = bench.groups((WINDOW_BYTES / BLOCK_BYTES) as u64, || {
        bandwidth::read(windows.next().unwrap_or_default());
        Ok(())
    })?;
    Ok(price.of(8 * words.len() as u64))
}

/// `measure` in the memory that more than one operation needs.
fn in_large(
    bench: &mut Bench,
    measure: fn(&Bench, &mut Arena) -> io::Result<Price>,
) -> io::Result<Price> {
    let mut arena = match bench.arena.take() {
        Some(arena) => arena,
        None => touched(bench.patience())?,
    };
    let price = measure(bench, &mut arena);
    bench.arena = Some(arena);
    price
}

/// A few microseconds of what programs do, in more code than a loop has.
pub fn mixed(unit: u32) {
    let texts = (0..16).map(|part| format!("{:e} {unit}", f64::from(part) * 0.7 + f64::from(unit)));
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    let first = |text: &String| {
        text.split(' ')
            .next()
            .and_then(|part| part.parse::<f64>().ok())
    };
    black_box(texts.iter().filter_map(first).sum::<f64>());
}
