//! What operations cost in this machine: `vtax-agent prices`.
//!
//! Each operation is timed in batches and stands in the table of its module; a further one needs a
//! line there and nothing else. One that cannot run here is absent with its reason. Everything runs
//! on the last CPU that the process may use, except what names two.
//!
//! `ns` is the median over batches of one operation's mean time, `low` and `high` are the quartiles.
//! Reading the timer is taken off. `faults` and `switches` are minor faults and voluntary switches
//! of one operation, of this process and its children; `calls` are its system calls. `size` is in
//! bytes, nanoseconds or pages, as the table of its operation says. `structural` marks the emptiest call of a class.
//!
//! Whoever traces the system calls of this machine meanwhile makes each of them dearer.

mod calls;
mod calls_unsafe;
pub mod cli;
mod compute;
mod faults;
mod files;
mod folder;
mod measure;
mod processes;
mod tree;
mod waiting;

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use vtax_sys::clock::monotonic_ns;

use crate::prices::measure::{Bench, Price, Timer};

/// How much longer it may take where operations are slow, as in an emulated guest: there each takes
/// the fewest batches.
const OVERTIME: Duration = Duration::from_secs(80);

/// The version of the answer's form.
const FORMAT: u32 = 1;

/// The answer of `vtax-agent prices`.
#[derive(Debug, Serialize)]
pub struct Prices {
    format: u32,
    timer: Timer,
    operations: Vec<Priced>,
    absent: Vec<Absent>,
}

#[derive(Debug, Serialize)]
struct Priced {
    #[serde(flatten)]
    operation: Operation,
    #[serde(flatten)]
    price: Price,
}

/// What has no price here.
#[derive(Debug, Serialize)]
struct Absent {
    name: &'static str,
    context: &'static str,
    reason: String,
}

/// An operation in one context.
#[derive(Debug, Clone, Copy, Serialize)]
struct Operation {
    name: &'static str,
    context: &'static str,
    /// Is it the emptiest call of its class?
    structural: bool,
    /// Bytes, nanoseconds or pages.
    size: Option<u64>,
    /// System calls of one operation.
    calls: f64,
    /// Sets up, measures and cleans up; the error says why there is no price.
    #[serde(skip)]
    run: fn(&mut Bench) -> io::Result<Price>,
}

const fn operation(
    name: &'static str,
    context: &'static str,
    calls: f64,
    run: fn(&mut Bench) -> io::Result<Price>,
) -> Operation {
    Operation {
        name,
        context,
        structural: false,
        size: None,
        calls,
        run,
    }
}

impl Operation {
    const fn structural(mut self) -> Self {
        self.structural = true;
        self
    }

    const fn of(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }
}

/// The operations that need most memory come last, when the time that is left is known.
const TABLES: [&[Operation]; 6] = [
    calls::TABLE,
    files::TABLE,
    faults::TABLE,
    processes::TABLE,
    waiting::TABLE,
    compute::TABLE,
];

fn all() -> impl Iterator<Item = &'static Operation> {
    TABLES.into_iter().flatten()
}

/// Each name once, in the order of the tables, with its contexts.
pub fn names() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut names: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in all() {
        match names.last_mut() {
            Some((name, contexts)) if *name == one.name => contexts.push(one.context),
            _ => names.push((one.name, vec![one.context])),
        }
    }
    names
}

/// Measure the operations with these names, or all if there are none.
///
/// Files are made in a folder in `parent`, which is removed; `None`: in /var/tmp, which is on the
/// file system that a guest's programs write to, or else in the current folder. The calling thread stays pinned to one
/// CPU. Each operation has an equal part of the time that is left; those that are not begun when
/// the time and `OVERTIME` are over are absent.
pub fn measure(only: &[String], time: Duration, parent: Option<&Path>) -> Prices {
    let begin = monotonic_ns();
    let chosen = |one: &&Operation| only.is_empty() || only.iter().any(|name| name == one.name);
    let chosen: Vec<&Operation> = all().filter(chosen).collect();
    let mut bench = Bench::new(time, parent);
    let (mut operations, mut absent) = (Vec::new(), Vec::new());
    for (at, one) in chosen.iter().enumerate() {
        let passed = Duration::from_nanos(monotonic_ns().saturating_sub(begin));
        let shares = u32::try_from(chosen.len() - at).unwrap_or(u32::MAX);
        bench.begin(time.saturating_sub(passed) / shares);
        let no_time = io::Error::other("no time was left for it: give more --seconds");
        let price = if passed < time + OVERTIME {
            (one.run)(&mut bench)
        } else {
            Err(no_time)
        };
        match price {
            Ok(price) => operations.push(Priced {
                operation: Operation {
                    size: price.bytes.or(one.size),
                    ..**one
                },
                price,
            }),
            Err(error) => absent.push(Absent {
                name: one.name,
                context: one.context,
                reason: vtax_sys::reason(&error),
            }),
        }
    }
    Prices {
        format: FORMAT,
        timer: bench.timer,
        operations,
        absent,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_so_are_the_contexts_of_a_name() {
        let names = names();
        let unique: BTreeSet<&str> = names.iter().map(|(name, _)| *name).collect();
        assert_eq!(unique.len(), names.len());
        for (name, contexts) in names {
            let unique: BTreeSet<&str> = contexts.iter().copied().collect();
            assert_eq!(unique.len(), contexts.len(), "{name}");
        }
    }
}
