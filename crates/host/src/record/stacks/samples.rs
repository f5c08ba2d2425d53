//! Where the time goes: `stacks.folded`, the stacks that the rows interrupt, weighted by the lengths of
//! the rows.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::layout::Stack;
use super::names::{self, Files};
use crate::record::difference::Interval;
use crate::record::files::Folder;
use crate::record::program::Programs;
use crate::record::row::Layer;
use vtax_sys::terminal::Error;

const FILE: &str = "stacks.folded";
/// Different stacks of addresses that are kept before they get names, of which there are far fewer.
const MOST: usize = 1 << 16;
const GUEST: &str = ";[guest]";
const UNKNOWN: &str = "unknown";

/// What the file stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// The unit of the weights.
    pub weight: &'static str,
    /// Their sum: the lengths of all rows.
    pub total: u64,
    /// Different stacks.
    pub stacks: usize,
    /// The line of the file for the number of each stack.
    #[serde(skip)]
    pub lines: Vec<u32>,
}

/// Nanoseconds of rows by their stacks.
#[derive(Debug, Default)]
pub struct Samples {
    /// Stacks without names: each with its number, and the time of its rows.
    addresses: HashMap<(Option<Layer>, String, Stack), (u32, u64)>,
    /// Stacks with names: each with the order in which it was found, and the time of its rows.
    lines: BTreeMap<String, (u32, u64)>,
    /// For the numbers of stacks with names that order.
    named: Vec<u32>,
}

impl Samples {
    /// Add a row; return the number of its stack.
    pub fn add(&mut self, interval: &Interval) -> u32 {
        let row = &interval.row;
        let key = (row.layer, row.comm.clone(), Stack::read(&row.stack));
        let next = count(self.named.len() + self.addresses.len());
        let (number, length_ns) = self.addresses.entry(key).or_insert((next, 0));
        *length_ns += interval.length_ns;
        *number
    }

    /// Name the stacks when there are many.
    ///
    /// Fails when a map is absent or cannot be read.
    pub fn bound(&mut self, programs: &Programs) -> Result<(), Error> {
        if self.addresses.len() >= MOST {
            self.name(&super::files(programs)?);
        }
        Ok(())
    }

    fn name(&mut self, files: &Files) {
        let stacks = self.addresses.keys().map(|(.., stack)| stack);
        let names = names::of(stacks, files);
        self.named
            .resize(self.named.len() + self.addresses.len(), 0);
        for ((layer, program, stack), (number, length_ns)) in self.addresses.drain() {
            let mode = layer.map_or(UNKNOWN, Layer::name);
            let mut line = names::fold(mode, &program, &stack, &names);
            if layer.is_some_and(Layer::is_guest) {
                line.push_str(GUEST);
            }
            let next = count(self.lines.len());
            let (order, all_ns) = self.lines.entry(line).or_insert((next, 0));
            *all_ns += length_ns;
            if let Some(named) = self.named.get_mut(number as usize) {
                *named = *order;
            }
        }
    }

    /// For the number of each stack with a name its place among the sorted lines.
    fn places(&self) -> Vec<u32> {
        let mut places = vec![0; self.lines.len()];
        for (place, (order, _)) in self.lines.values().enumerate() {
            places[*order as usize] = count(place);
        }
        let place = |order: &u32| places[*order as usize];
        self.named.iter().map(place).collect()
    }

    /// Write the stacks with names.
    ///
    /// Fails when a map is absent or cannot be read, or the file cannot be written.
    pub fn write(mut self, programs: &Programs, folder: &Folder) -> Result<Counted, Error> {
        self.name(&super::files(programs)?);
        let lines = self.lines.iter();
        super::write(lines.map(|(line, (_, ns))| (line, *ns)), folder, FILE)?;
        Ok(Counted {
            weight: "ns",
            total: self.lines.values().map(|(_, ns)| ns).sum(),
            stacks: self.lines.len(),
            lines: self.places(),
        })
    }
}

/// A number of stacks; rows have no room for more than these.
fn count(stacks: usize) -> u32 {
    u32::try_from(stacks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::row::{HEADER_WORDS, Row};

    fn interval(layer: u64, length_ns: u64, stack: &[u64]) -> Interval {
        let mut words = [0; HEADER_WORDS];
        words[8] = layer << 32;
        let mut row = Row::from_words(&words).unwrap();
        row.comm = "vcpu".into();
        row.stack = stack.to_vec();
        Interval {
            row,
            lost: 0,
            length_ns,
            throttled_ns: 0,
            stack: None,
            columns: Vec::new(),
        }
    }

    #[test]
    fn lengths_are_added_up_by_names_and_a_guest_is_one_frame() {
        let mut samples = Samples::default();
        // The user's only frame is in no file, at two offsets.
        let mut numbers = vec![
            samples.add(&interval(0, 5, &[1, 0x10])),
            samples.add(&interval(0, 7, &[1, 0x20])),
            samples.add(&interval(4, 11, &[0])),
        ];
        samples.name(&Files::new());
        numbers.push(samples.add(&interval(4, 6, &[0])));
        numbers.push(samples.add(&interval(4, 7, &[0])));
        numbers.push(samples.add(&interval(77, 1, &[])));
        samples.name(&Files::new());
        assert_eq!(numbers, [0, 1, 2, 3, 3, 4]);
        let expected = [
            ("guest;vcpu;[guest]", 24),
            ("host user;vcpu;[no file]", 12),
            ("unknown;vcpu", 1),
        ];
        let found: Vec<_> = samples.lines.iter().collect();
        let found: Vec<_> = found
            .iter()
            .map(|(line, (_, ns))| (line.as_str(), *ns))
            .collect();
        assert_eq!(found, expected);
        // The line of each row: its place in the sorted file.
        let places = samples.places();
        let lines = numbers.iter().map(|number| places[*number as usize]);
        assert_eq!(lines.collect::<Vec<_>>(), [1, 1, 0, 0, 0, 2]);
    }
}
