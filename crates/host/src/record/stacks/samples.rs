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
}

/// Nanoseconds of rows by their stacks.
#[derive(Debug, Default)]
pub struct Samples {
    addresses: HashMap<(Option<Layer>, String, Stack), u64>,
    lines: BTreeMap<String, u64>,
}

impl Samples {
    pub fn add(&mut self, interval: &Interval) {
        let row = &interval.row;
        let key = (row.layer, row.comm.clone(), Stack::read(&row.stack));
        *self.addresses.entry(key).or_default() += interval.length_ns;
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
        for ((layer, program, stack), length_ns) in self.addresses.drain() {
            let mode = layer.map_or(UNKNOWN, Layer::name);
            let mut line = names::fold(mode, &program, &stack, &names);
            if layer.is_some_and(Layer::is_guest) {
                line.push_str(GUEST);
            }
            *self.lines.entry(line).or_default() += length_ns;
        }
    }

    /// Write the stacks with names.
    ///
    /// Fails when a map is absent or cannot be read, or the file cannot be written.
    pub fn write(mut self, programs: &Programs, folder: &Folder) -> Result<Counted, Error> {
        self.name(&super::files(programs)?);
        super::write(&self.lines, folder, FILE)?;
        Ok(Counted {
            weight: "ns",
            total: self.lines.values().sum(),
            stacks: self.lines.len(),
        })
    }
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
            columns: Vec::new(),
        }
    }

    #[test]
    fn lengths_are_added_up_by_names_and_a_guest_is_one_frame() {
        let mut samples = Samples::default();
        // The user's only frame is in no file, at two offsets.
        samples.add(&interval(0, 5, &[1, 0x10]));
        samples.add(&interval(0, 7, &[1, 0x20]));
        samples.add(&interval(4, 11, &[0]));
        samples.name(&Files::new());
        samples.add(&interval(4, 13, &[0]));
        samples.add(&interval(77, 1, &[]));
        samples.name(&Files::new());
        let expected = [
            ("guest;vcpu;[guest]", 24),
            ("host user;vcpu;[no file]", 12),
            ("unknown;vcpu", 1),
        ];
        let expected = expected.map(|(line, ns)| (line.to_owned(), ns));
        assert_eq!(samples.lines, BTreeMap::from(expected));
    }
}
