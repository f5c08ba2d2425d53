//! What the readers of the formats fill and return.

use crate::model::address::{Gva, Reference};
use crate::step::Operation;

use crate::traces::error::{Fault, Position};

/// The most references in one block.
pub const BLOCK_REFERENCES: usize = 4096;

/// References and the instructions around them.
pub(crate) struct Block {
    /// The references in order, at most [`BLOCK_REFERENCES`].
    pub references: Vec<Reference>,
    /// Instructions that the trace counted.
    pub instructions: u64,
    /// The trace's own base CPI.
    pub base_cpi: Option<f32>,
    /// The block vector of an interval that ends.
    pub vector: Vec<u64>,
}

impl Block {
    /// A block with room for [`BLOCK_REFERENCES`].
    pub fn new() -> Self {
        Self {
            references: Vec::with_capacity(BLOCK_REFERENCES),
            instructions: 0,
            base_cpi: None,
            vector: Vec::new(),
        }
    }

    /// Empties the block for the next one.
    pub fn clear(&mut self) {
        self.references.clear();
        self.instructions = 0;
        self.base_cpi = None;
    }

    /// Do `count` more references fit?
    pub fn has_room(&self, count: usize) -> bool {
        self.references.len() + count <= BLOCK_REFERENCES
    }

    /// Appends a load or a store.
    #[inline]
    pub fn push(&mut self, address: u64, write: bool) {
        self.references.push(Reference::new(Gva(address), write));
    }
}

/// What a reader found next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item {
    /// The block was filled.
    References,
    Operation(Operation),
    /// A phase begins.
    Phase(u32),
    /// An interval ends, whose references were recorded or not; the block has its vector.
    Interval(bool),
    /// The trace ends here, as it should.
    End,
}

/// The reader of one format.
pub(crate) trait Reader: Send {
    /// The next item; `block` is empty before.
    fn next(&mut self, block: &mut Block) -> Result<Item, Fault>;

    /// The reader's position, for a count of what was read.
    fn position(&self) -> Position;
}
