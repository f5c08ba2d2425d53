//! Address-space tags, which decide which TLB entries stay usable after a CR3 load.

use std::collections::BTreeMap;

use super::tag::MAX_SPACES;
use crate::model::address::Gfn;

/// The tags of the address spaces whose entries may still be held. Tag 0 is the space that runs
/// when nothing else is known.
#[derive(Default)]
pub struct Spaces {
    tags: BTreeMap<Gfn, u16>,
    next: u16,
    current: u16,
}

impl Spaces {
    /// The running space's tag.
    #[inline]
    pub fn current(&self) -> u16 {
        self.current
    }

    /// A CR3 load that preserves other spaces' entries; returns whether the tags ran out, so that
    /// everything must be emptied after all.
    pub fn enter(&mut self, root: Gfn) -> bool {
        if let Some(&tag) = self.tags.get(&root) {
            self.current = tag;
            return false;
        }
        if self.next + 1 >= MAX_SPACES {
            self.restart(root);
            return true;
        }
        self.next += 1;
        self.current = self.next;
        self.tags.insert(root, self.current);
        false
    }

    /// A CR3 load that empties everything: all tags are free again.
    pub fn restart(&mut self, root: Gfn) {
        *self = Self::default();
        self.tags.insert(root, 0);
    }

    /// The table is gone. Its frame may become another root, which must not inherit the entries.
    pub fn forget(&mut self, root: Gfn) {
        self.tags.remove(&root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_keep_their_tags_until_they_are_freed() {
        let mut spaces = Spaces::default();
        let tags = [1, 2, 1].map(|root| {
            assert!(!spaces.enter(Gfn(root)));
            spaces.current()
        });
        assert_eq!(tags, [1, 2, 1]);
        spaces.forget(Gfn(1));
        spaces.enter(Gfn(1));
        assert_eq!(spaces.current(), 3);
    }

    #[test]
    fn tags_start_again_when_they_run_out() {
        let mut spaces = Spaces::default();
        let emptied: Vec<u64> = (0..5000).filter(|&root| spaces.enter(Gfn(root))).collect();
        assert_eq!(emptied, [u64::from(MAX_SPACES) - 1]);
    }
}
