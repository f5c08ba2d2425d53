//! The tree of one function.

use crate::cast;
use crate::pattern;
use crate::workloads::compiler_like::arena::{Arena, Id};
use crate::workloads::compiler_like::symbols::{self, Symbols};
use vtax_sys::terminal::Error;

/// The kinds of nodes: a leaf's words are kind, key and value; an inner node's words are kind and
/// the two nodes below it.
const LEAF: u64 = 0;
const ADD: u64 = 1;
const MIX: u64 = 2;

/// A tree of nodes in an arena.
#[derive(Debug)]
pub struct Tree {
    arena: Arena,
    root: Id,
}

/// A part of the tree that is not yet below another node, and its value.
type Part = (Id, u64);

impl Tree {
    /// Build a random tree; also returns the value that it must fold to.
    ///
    /// Fails when the kernel refuses to map memory for the nodes.
    pub fn parse(
        leaves: usize,
        random: &mut fastrand::Rng,
        symbols: &Symbols,
    ) -> Result<(Self, u64), Error> {
        let mut arena = Arena::default();
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..leaves.max(1) {
            let key = symbols.key(random.u64(..symbols.len()));
            parts.push((arena.add([LEAF, key, 0, 0])?, symbols::value(key)));
            while parts.len() > 1 && random.bool() {
                join(&mut arena, &mut parts, random)?;
            }
        }
        while parts.len() > 1 {
            join(&mut arena, &mut parts, random)?;
        }
        let (root, expected) = parts.pop().unwrap_or_default();
        Ok((Self { arena, root }, expected))
    }

    /// Write the value of each symbol into its leaves; returns how many were not found.
    pub fn resolve(&mut self, symbols: &Symbols) -> u64 {
        let mut unknown = 0;
        let mut open = vec![self.root];
        while let Some(id) = open.pop() {
            if let Some(below) = self.below(id) {
                open.extend(below);
                continue;
            }
            let words = self.arena.words_mut(id);
            let value = symbols.find(words[1]);
            unknown += u64::from(value.is_none());
            words[2] = value.unwrap_or(0);
        }
        unknown
    }

    /// The value of the tree, from its nodes.
    pub fn fold(&self) -> u64 {
        let mut values = Vec::new();
        let mut open = vec![Step::Enter(self.root)];
        while let Some(step) = open.pop() {
            match step {
                Step::Enter(id) => self.enter(id, &mut open, &mut values),
                Step::Leave(kind) => {
                    let (right, left) = (values.pop(), values.pop());
                    values.push(combine(kind, left.unwrap_or(0), right.unwrap_or(0)));
                }
            }
        }
        values.pop().unwrap_or(0)
    }

    fn enter(&self, id: Id, open: &mut Vec<Step>, values: &mut Vec<u64>) {
        let words = self.arena.words(id);
        match self.below(id) {
            Some([left, right]) => {
                open.extend([Step::Leave(words[0]), Step::Enter(right), Step::Enter(left)]);
            }
            None => values.push(words[2]),
        }
    }

    /// The two nodes below an inner node.
    ///
    /// They were made before it, so each step goes to a smaller number. So in damaged memory a walk
    /// also ends, with a wrong value.
    fn below(&self, id: Id) -> Option<[Id; 2]> {
        let words = self.arena.words(id);
        let below = [words[1], words[2]].map(cast::index);
        (words[0] != LEAF && below.iter().all(|other| *other < id)).then_some(below)
    }

    pub fn len(&self) -> u64 {
        cast::count(self.arena.len())
    }
}

enum Step {
    Enter(Id),
    /// Visited when both nodes below have their values.
    Leave(u64),
}

/// Put the last two parts below a new node.
fn join(arena: &mut Arena, parts: &mut Vec<Part>, random: &mut fastrand::Rng) -> Result<(), Error> {
    if let (Some((right, b)), Some((left, a))) = (parts.pop(), parts.pop()) {
        let kind = if random.bool() { ADD } else { MIX };
        let id = arena.add([kind, cast::count(left), cast::count(right), 0])?;
        parts.push((id, combine(kind, a, b)));
    }
    Ok(())
}

fn combine(kind: u64, left: u64, right: u64) -> u64 {
    if kind == ADD {
        left.wrapping_add(right)
    } else {
        pattern::mix(left ^ right.rotate_left(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Context;
    use crate::options::Parameters;
    use crate::workload::{Job, Workload};
    use crate::workloads::compiler_like::CompilerLike;
    use crate::workloads::tests::context;

    fn symbols(context: &Context<'_>) -> Symbols {
        let options = CompilerLike.description().options;
        let parameters = Parameters::new(options, |_| None).unwrap();
        let job = Job {
            parameters: &parameters,
            limit: crate::bound::Limit::new(crate::Bound::Count(1)),
            context,
        };
        Symbols::new(&job, 1).unwrap()
    }

    #[test]
    fn a_tree_folds_to_its_value_and_a_damaged_one_does_not() {
        let symbols = symbols(&context());
        let mut random = fastrand::Rng::with_seed(1);
        for leaves in [1, 2, 3, 1000, 20_000] {
            let (mut tree, expected) = Tree::parse(leaves, &mut random, &symbols).unwrap();
            assert_eq!(tree.resolve(&symbols), 0);
            assert_eq!(tree.fold(), expected, "{leaves}");
            tree.arena.words_mut(0)[2] ^= 1;
            assert_ne!(tree.fold(), expected, "{leaves}");
            tree.arena.words_mut(tree.root).fill(u64::MAX);
            assert_ne!(tree.fold(), expected, "{leaves}");
        }
    }

    #[test]
    fn a_symbol_that_is_not_there_is_counted() {
        let symbols = symbols(&context());
        let mut random = fastrand::Rng::with_seed(1);
        let (mut tree, _) = Tree::parse(10, &mut random, &symbols).unwrap();
        tree.arena.words_mut(0)[1] ^= 1;
        assert_eq!(tree.resolve(&symbols), 1);
    }
}
