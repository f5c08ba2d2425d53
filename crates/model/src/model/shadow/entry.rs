//! One entry of a shadow table.

use crate::model::address::Gfn;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const CLEAN: u64 = 1 << 2;
const LEAF: u64 = 1 << 3;
const NESTED: u64 = 1 << 4;
const PAYLOAD_SHIFT: u32 = 12;

/// An entry, packed into the eight bytes that it has in the modelled host.
///
/// It names guest frames where hardware has host frames: the model lays guest memory out densely in
/// host memory, so that one represents the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    pub(super) const ABSENT: Self = Self(0);

    /// An entry that maps a page. A page whose guest entry is clean stays read-only until its first
    /// write, so that the VMM sees that write and sets the guest's dirty bit.
    pub(super) const fn leaf(frame: Gfn, writable: bool, dirty: bool) -> Self {
        let access = match (writable, dirty) {
            (false, _) => 0,
            (true, true) => WRITABLE,
            (true, false) => CLEAN,
        };
        Self(PRESENT | LEAF | access | (frame.0 << PAYLOAD_SHIFT))
    }

    /// An entry that points to another shadow page.
    pub(super) const fn directory(page: usize) -> Self {
        Self(PRESENT | ((page as u64) << PAYLOAD_SHIFT))
    }

    /// Agile paging: from this entry on, the walk continues in the guest's own table in `frame`.
    pub(super) const fn nested(frame: Gfn) -> Self {
        Self(PRESENT | NESTED | (frame.0 << PAYLOAD_SHIFT))
    }

    pub(super) const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    pub(super) const fn is_nested(self) -> bool {
        self.0 & NESTED != 0
    }

    pub(super) const fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// Is it read-only only because the guest's dirty bit is clear?
    pub(super) const fn is_clean(self) -> bool {
        self.0 & CLEAN != 0
    }

    /// The same entry for another frame.
    pub(super) const fn at(self, frame: Gfn) -> Self {
        Self((self.0 & ((1 << PAYLOAD_SHIFT) - 1)) | (frame.0 << PAYLOAD_SHIFT))
    }

    /// The frame that a leaf or a nested entry names.
    pub(super) const fn frame(self) -> Gfn {
        Gfn(self.0 >> PAYLOAD_SHIFT)
    }

    /// The page that a directory entry points to; `None` for any other entry.
    #[allow(clippy::cast_possible_truncation)] // made from a usize
    pub(super) const fn child(self) -> Option<usize> {
        if self.0 & (PRESENT | LEAF | NESTED) == PRESENT {
            Some((self.0 >> PAYLOAD_SHIFT) as usize)
        } else {
            None
        }
    }
}
