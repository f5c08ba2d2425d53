//! Which fills repeat work that a switch of modes discarded.

use std::collections::HashMap;

use super::geometry::{ENTRIES, Key};

/// The entries filled since the last switch to shadow paging.
#[derive(Debug, Default)]
pub(super) struct Refills {
    /// The guest's clock at the switch; `None` before the first switch.
    clock: Option<u64>,
    filled: HashMap<Key, [u64; ENTRIES / 64]>,
}

impl Refills {
    /// Starts to count at a switch.
    pub(super) fn since(clock: u64) -> Self {
        Self {
            clock: Some(clock),
            filled: HashMap::new(),
        }
    }

    /// Notes the fill of an entry whose guest entry was written at `written_at`; returns whether it
    /// is a refill: the guest entry is older than the switch and was not filled since.
    pub(super) fn note(&mut self, key: Key, index: usize, written_at: u64) -> bool {
        if self.clock.is_none_or(|clock| written_at > clock) {
            return false;
        }
        let bits = self.filled.entry(key).or_default();
        let (word, bit) = (index / 64 % bits.len(), 1 << (index % 64));
        let before = bits[word];
        bits[word] |= bit;
        before & bit == 0
    }
}
