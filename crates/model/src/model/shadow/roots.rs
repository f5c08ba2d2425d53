//! The root in use and the roots before it.

use crate::model::address::Gfn;

/// Roots that KVM remembers besides the one in use (`KVM_MMU_NUM_PREV_ROOTS`).
const PREVIOUS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Root {
    frame: Gfn,
    page: usize,
}

/// A small cache of shadow roots, most recent first.
#[derive(Debug, Default)]
pub(super) struct Roots {
    active: Option<Root>,
    previous: Vec<Root>,
}

impl Roots {
    /// The shadow page of `frame`, if that is the current root.
    #[inline]
    pub(super) fn page_of(&self, frame: Gfn) -> Option<usize> {
        self.active
            .filter(|root| root.frame == frame)
            .map(|root| root.page)
    }

    pub(super) fn is_active(&self, page: usize) -> bool {
        self.active.is_some_and(|root| root.page == page)
    }

    /// Makes a remembered root the current one; returns whether it was remembered.
    pub(super) fn activate(&mut self, frame: Gfn) -> bool {
        if self.page_of(frame).is_some() {
            return true;
        }
        let Some(at) = self.previous.iter().position(|root| root.frame == frame) else {
            return false;
        };
        let root = self.previous.remove(at);
        self.replace(root);
        true
    }

    /// Makes a new root the current one.
    pub(super) fn enter(&mut self, frame: Gfn, page: usize) {
        self.replace(Root { frame, page });
    }

    /// Sets the current root aside: the next root is not shadowed.
    pub(super) fn leave(&mut self) {
        if let Some(root) = self.active.take() {
            self.remember(root);
        }
    }

    /// Forgets a page that is taken down.
    pub(super) fn forget(&mut self, page: usize) {
        self.active = self.active.filter(|root| root.page != page);
        self.previous.retain(|root| root.page != page);
    }

    /// The pages of all roots, the current root's first.
    pub(super) fn pages(&self) -> impl Iterator<Item = usize> + '_ {
        self.active
            .iter()
            .chain(&self.previous)
            .map(|root| root.page)
    }

    fn replace(&mut self, root: Root) {
        self.leave();
        self.active = Some(root);
    }

    fn remember(&mut self, root: Root) {
        self.previous.insert(0, root);
        self.previous.truncate(PREVIOUS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_previous_roots_are_remembered() {
        let mut roots = Roots::default();
        for (root, page) in (1..=5).zip(1..) {
            assert!(!roots.activate(Gfn(root)));
            roots.enter(Gfn(root), page);
        }
        assert_eq!(roots.pages().collect::<Vec<_>>(), [5, 4, 3, 2]);
        assert!(roots.activate(Gfn(2)));
        assert_eq!(roots.pages().collect::<Vec<_>>(), [2, 5, 4, 3]);
        assert!(!roots.activate(Gfn(1)));
        roots.forget(2);
        assert_eq!(roots.page_of(Gfn(2)), None);
        assert_eq!(roots.pages().collect::<Vec<_>>(), [5, 4, 3]);
    }
}
