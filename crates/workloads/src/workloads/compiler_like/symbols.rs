//! A hash table of symbols whose entries lie scattered over its memory.

use crate::cast;
use crate::pattern;
use crate::walk::Permutation;
use crate::workload::Job;
use crate::workloads::memory::map;
use vtax_sys::calls::memory::Region;
use vtax_sys::terminal::Error;

/// Words of an entry: key, value, the next entry's number plus one, and one unused.
const ENTRY_WORDS: u64 = 4;

/// Words of memory for each symbol: an entry, and the head of a chain.
const SYMBOL_WORDS: u64 = ENTRY_WORDS + 1;

#[derive(Debug)]
pub struct Symbols {
    seed: u64,
    count: u64,
    /// The chains' heads, then the entries.
    memory: Region,
}

impl Symbols {
    /// A table with as many symbols as fit in `--mem`.
    ///
    /// Fails when that much memory is not available or cannot be mapped.
    pub fn new(job: &Job<'_>, seed: u64) -> Result<Self, Error> {
        let memory = map(job, job.parameters.number("mem"), false)?;
        Ok(Self::fill(memory, seed))
    }

    fn fill(memory: Region, seed: u64) -> Self {
        let mut table = Self {
            seed,
            count: cast::count(memory.words().len()) / SYMBOL_WORDS,
            memory,
        };
        // Names that follow each other in a source are not neighbours in the table.
        let indices = Permutation::new(table.count, seed);
        for symbol in 0..table.count {
            table.insert(symbol, indices.at(symbol));
        }
        table
    }

    fn insert(&mut self, symbol: u64, index: u64) {
        let key = self.key(symbol);
        let head = self.head(key);
        let begin = self.entry(index);
        let words = self.memory.words_mut();
        let next = std::mem::replace(&mut words[head], index + 1);
        words[begin..begin + 3].copy_from_slice(&[key, value(key), next]);
    }

    fn head(&self, key: u64) -> usize {
        cast::index(key % self.count)
    }

    fn entry(&self, index: u64) -> usize {
        cast::index(self.count + index * ENTRY_WORDS)
    }

    pub fn len(&self) -> u64 {
        self.count
    }

    /// The key of a symbol: in a compiler, its name.
    pub fn key(&self, symbol: u64) -> u64 {
        pattern::word(self.seed, symbol)
    }

    /// The value of a key, looked up in the table.
    pub fn find(&self, key: u64) -> Option<u64> {
        let words = self.memory.words();
        let mut next = words[self.head(key)];
        // A chain cannot be longer than the table: a walk of a damaged chain must end.
        for _ in 0..self.count {
            let index = next.checked_sub(1).filter(|index| *index < self.count)?;
            let entry = &words[self.entry(index)..];
            if entry[0] == key {
                return Some(entry[1]);
            }
            next = entry[2];
        }
        None
    }
}

/// The value that the table must have for a key.
pub fn value(key: u64) -> u64 {
    pattern::mix(!key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Symbols {
        Symbols::fill(Region::map(10).unwrap(), 3)
    }

    #[test]
    fn every_symbol_is_found_and_no_other() {
        let table = table();
        assert_eq!(table.len(), 1024);
        for symbol in 0..table.len() {
            let key = table.key(symbol);
            assert_eq!(table.find(key), Some(value(key)));
        }
        assert_eq!(table.find(1), None);
    }

    #[test]
    fn a_damaged_chain_is_neither_endless_nor_a_panic() {
        for wrong in [1, u64::MAX, u64::MAX / 8] {
            let mut table = table();
            table.memory.words_mut().fill(wrong);
            assert_eq!(table.find(table.key(5)), None);
        }
    }
}
