//! Small nodes in pools of memory that are mapped as needed and unmapped together.

use crate::workloads::memory::{PAGE_WORDS, map_pages};
use vtax_sys::calls::memory::Region;
use vtax_sys::terminal::Error;

/// Pages of a pool: 128 KiB.
const POOL_PAGES: usize = 32;

/// Words of a node, and nodes of a pool.
const NODE_WORDS: usize = 4;
const POOL_NODES: usize = POOL_PAGES * PAGE_WORDS / NODE_WORDS;

/// A node's number.
pub type Id = usize;

pub type Node = [u64; NODE_WORDS];

#[derive(Debug, Default)]
pub struct Arena {
    pools: Vec<Region>,
    nodes: usize,
}

impl Arena {
    /// Put a node into the arena.
    ///
    /// Fails when the arena is full and the kernel refuses to map more memory.
    pub fn add(&mut self, node: Node) -> Result<Id, Error> {
        let id = self.nodes;
        if id == self.pools.len() * POOL_NODES {
            self.pools.push(map_pages(POOL_PAGES, false)?);
        }
        self.nodes += 1;
        self.words_mut(id).copy_from_slice(&node);
        Ok(id)
    }

    /// The words of a node that was added.
    pub fn words(&self, id: Id) -> &[u64] {
        let begin = id % POOL_NODES * NODE_WORDS;
        &self.pools[id / POOL_NODES].words()[begin..begin + NODE_WORDS]
    }

    /// The words of a node, for writing.
    pub fn words_mut(&mut self, id: Id) -> &mut [u64] {
        let begin = id % POOL_NODES * NODE_WORDS;
        &mut self.pools[id / POOL_NODES].words_mut()[begin..begin + NODE_WORDS]
    }

    pub fn len(&self) -> usize {
        self.nodes
    }
}
