//! Which of the types and numbers that Linux shows are believed, and what disagrees with them.

use vtax_sys::tree::Tree;

use crate::place::cores::cut::{CUT, Kinds, by_numbers, by_types, count, median};
use crate::place::cores::read::{Core, SOURCES, SpeedNumber, Types, mates, numbers, types};
use crate::place::cores::sorted;
use crate::place::cpus::written;

/// The kind of each core, and how it is known.
pub struct Found {
    pub of: Kinds,
    /// Each core's number, from the source of speeds.
    pub numbers: Vec<Option<f64>>,
    /// How the kinds are known.
    pub source: Option<String>,
    /// What to know before believing the result.
    pub notes: Vec<String>,
}

impl Found {
    /// Classify these cores.
    pub fn of(tree: &Tree, all: &[Core]) -> Self {
        let readings = SOURCES.map(|source| Reading::take(tree, source, all));
        let types = types(tree, all);
        // The first source whose numbers show several kinds; with types, numbers that differ
        // between types.
        let tells = |one: &&Reading| {
            one.known()
                && match &types {
                    Some(types) => count(&by_types(&unordered(types), &one.numbers)) > 1,
                    None => count(&one.kinds) > 1,
                }
        };
        let by = readings.iter().find(tells);
        let numbers = by.map_or_else(|| vec![None; all.len()], |one| one.numbers.clone());
        let mut notes = Vec::new();
        let of = match &types {
            Some(types) if types.ordered || by.is_some() => by_types(types, &numbers),
            Some(types) => {
                let what = types.source;
                notes.push(format!(
                    "cores differ by {what}, and nothing says which are faster: name them with \
                     --fast or --slow"
                ));
                vec![Some(0); all.len()]
            }
            None => by.map_or_else(|| vec![Some(0); all.len()], |one| one.kinds.clone()),
        };
        let mut found = Self {
            of,
            numbers,
            source: None,
            notes,
        };
        found.complete(tree, all, &readings);
        found.source = Self::said(
            types.as_ref().map(|one| one.source),
            by.map(|one| one.source),
        );
        if count(&found.of) > 1 {
            found.disagreements(all, &readings, by.map(|one| one.source));
        }
        found
    }

    /// A core without a kind gets the kind of the cores with which it shares a cache or a cluster;
    /// otherwise, the kind whose number in another source is nearest to its own.
    fn complete(&mut self, tree: &Tree, all: &[Core], readings: &[Reading]) {
        let known = self.of.clone();
        let missing = (0..).zip(&known).filter(|(_, of)| of.is_none());
        for (place, _) in missing {
            let near = mates(tree, all, place);
            let mut of_mates: Vec<usize> =
                near.iter().filter_map(|mate| *known.get(*mate)?).collect();
            of_mates.sort_unstable();
            of_mates.dedup();
            let own = match of_mates.as_slice() {
                [one] => Some(*one),
                _ => readings.iter().find_map(|one| nearest(one, &known, place)),
            };
            if let Some(of) = self.of.get_mut(place) {
                *of = own;
            }
        }
    }

    fn said(types: Option<&str>, by: Option<SpeedNumber>) -> Option<String> {
        let speed = by.map(|one| {
            format!(
                "{}{}",
                one.file,
                if one.clock { ", a clock alone" } else { "" }
            )
        });
        match (types, speed) {
            (Some(types), Some(speed)) => Some(format!("by {types}, speeds by {speed}")),
            (Some(types), None) => Some(format!("by {types}, speeds not known")),
            (None, speed) => speed.map(|speed| format!("by {speed}")),
        }
    }

    /// Sources that show kinds other than these; a clock that shows none says nothing.
    fn disagreements(&mut self, all: &[Core], readings: &[Reading], by: Option<SpeedNumber>) {
        let mut above = true;
        for one in readings {
            above &= by != Some(one.source);
            if by == Some(one.source) {
                self.inversions(all, one);
            }
            let same = one.kinds.iter().zip(&self.of);
            let other = same
                .filter(|(theirs, _)| theirs.is_some())
                .any(|(a, b)| a != b);
            if !one.known() || by == Some(one.source) || !other {
                continue;
            }
            let file = one.source.file;
            if count(&one.kinds) < 2 {
                if above {
                    self.notes
                        .push(format!("{file} shows one kind of cores only"));
                }
                continue;
            }
            let shown_kinds: Vec<String> = (0..count(&one.kinds))
                .map(|kind| shown(all, &one.kinds, kind))
                .collect();
            let other = format!("{file} shows other kinds: {}", shown_kinds.join(" | "));
            self.notes.push(other);
        }
    }

    /// Types that are slower by name but faster by numbers.
    fn inversions(&mut self, all: &[Core], by: &Reading) {
        let speeds: Vec<Option<f64>> = (0..count(&self.of))
            .map(|kind| {
                let own = by.numbers.iter().zip(&self.of);
                median(own.filter_map(|(one, of)| one.filter(|_| *of == Some(kind))))
            })
            .collect();
        for (kind, (above, own)) in (1..).zip(speeds.iter().zip(speeds.iter().skip(1))) {
            if !above.zip(*own).is_some_and(|(above, own)| own > above) {
                continue;
            }
            let cpus = shown(all, &self.of, kind);
            let file = by.source.file;
            self.notes.push(format!(
                "CPU {cpus} is of a slower type, and faster by {file}"
            ));
        }
    }
}

/// The CPUs of a kind.
fn shown(all: &[Core], kinds: &[Option<usize>], kind: usize) -> String {
    let own = all.iter().zip(kinds).filter(|(_, of)| **of == Some(kind));
    let own: Vec<Core> = own.map(|(core, _)| core.clone()).collect();
    written(&sorted(&own))
}

/// Types whose order is to be found by numbers, which shows whether the numbers distinguish them.
fn unordered(types: &Types) -> Types {
    Types {
        ordered: false,
        ..types.clone()
    }
}

/// The kind whose numbers in a source are nearest to a core's, where only one kind is near.
fn nearest(reading: &Reading, known: &[Option<usize>], place: usize) -> Option<usize> {
    let own = (*reading.numbers.get(place)?)?;
    let near = (0..count(known)).filter(|kind| {
        let of_kind = reading.numbers.iter().zip(known);
        let theirs = median(of_kind.filter_map(|(one, of)| one.filter(|_| *of == Some(*kind))));
        theirs.is_some_and(|theirs| own >= CUT * theirs && theirs >= CUT * own)
    });
    let near: Vec<usize> = near.collect();
    match near.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// The numbers of one source.
struct Reading {
    source: SpeedNumber,
    numbers: Vec<Option<f64>>,
    kinds: Kinds,
}

impl Reading {
    fn take(tree: &Tree, source: SpeedNumber, cores: &[Core]) -> Self {
        let numbers = numbers(tree, source, cores);
        let kinds = by_numbers(&numbers);
        Self {
            source,
            numbers,
            kinds,
        }
    }

    /// Does the source have a number for most of the cores?
    fn known(&self) -> bool {
        2 * self.numbers.iter().flatten().count() > self.numbers.len()
    }
}
