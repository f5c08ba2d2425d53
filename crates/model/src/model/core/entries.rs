//! How often walks read each entry of the guest's page tables.

use std::collections::HashMap;

use crate::model::address::{Gva, Hpa, USER_END};

/// Counts by the entry's address in memory, of walks for user addresses.
///
/// A table whose memory becomes another table keeps its counts.
#[derive(Debug, Default)]
pub struct EntryCounts {
    /// Reads of entries of every level that the page-walk caches do not save.
    pub reads: HashMap<u64, u64>,
    /// Walks, and so TLB misses, by the last entry that they read.
    pub misses: HashMap<u64, u64>,
}

impl EntryCounts {
    pub(super) fn read(&mut self, entry: Hpa, address: Gva, last: bool) {
        if address.0 >= USER_END {
            return;
        }
        *self.reads.entry(entry.0).or_default() += 1;
        if last {
            *self.misses.entry(entry.0).or_default() += 1;
        }
    }
}
