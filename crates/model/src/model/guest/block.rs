//! Translating many references at once, before any core sees them.
//!
//! Most of the time goes into waiting for the entries: 1 GiB of small pages has 2 MiB of them. So a
//! block first finds the lowest tables, for which it remembers recent paths. Then it reads all
//! entries, which a processor does for many at a time, and finally examines them.

use std::cell::OnceCell;

use super::Guest;
use super::tables::{End, Leaf, Path};
use crate::model::address::{Gfn, Gva, MAX_LEVELS, PAGE_SHIFT, PageSize, Reference, TableFormat};
use crate::model::guest_event::{Access, Seen, Translated};

/// The most accesses of a block: they stay in a processor's nearest caches from stage to stage.
const LONGEST: usize = 256;
/// The most accesses after a reference that changed the guest: others may follow soon, as when
/// memory is touched for the first time.
const SHORTEST: usize = 2;
/// The most references of a block, most of which are then to the page of the reference before.
const MOST_REFERENCES: usize = 1 << 20;
/// How many paths to tables are remembered: those to 2 GiB of consecutive 4 KiB pages.
const PATHS: usize = 1024;

/// References that change nothing in the guest's tables, so that every core can follow them later.
///
/// Consecutive references to one page are one access: the others hit the first TLB in every mode.
#[derive(Debug)]
pub struct Block {
    format: TableFormat,
    found: Vec<Found>,
    /// The same with all that the guest's tables say, which only shadow paging needs.
    accesses: OnceCell<Vec<Access>>,
    /// The page of the last reference in the block, and whether it was written.
    last: Option<(u64, bool)>,
    known: Vec<Known>,
    /// The paths that are known, apart from their ends: few references need them.
    paths: Vec<Path>,
    /// The most accesses of the next block.
    limit: usize,
    /// The number of blocks so far.
    number: u64,
}

/// The end of the path to the entries of a region, which is what one entry of level 2 covers.
#[derive(Clone, Copy, Debug)]
struct Known {
    region: u64,
    root: Gfn,
    /// The block in which the path was last needed.
    block: u64,
    end: End,
}

/// A reference whose table is found.
#[derive(Clone, Copy, Debug)]
struct Found {
    reference: Reference,
    leaf: Leaf,
    /// Where the leaf is read.
    leaf_index: usize,
    /// Its index among the references that fill the block.
    number: u32,
    /// Its index in `paths`.
    slot: u16,
    size: PageSize,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            format: TableFormat::default(),
            found: Vec::with_capacity(LONGEST),
            accesses: OnceCell::new(),
            last: None,
            known: vec![Known::NOTHING; PATHS],
            paths: vec![Path::NONE; PATHS],
            limit: LONGEST,
            number: 0,
        }
    }
}

impl Block {
    /// Refills the block with the first of `references`: up to a reference at which the guest would
    /// fault, set a dirty bit or exit for a device, or as many as fit. Returns how many references
    /// were taken, and whether the next one changes the guest.
    pub fn fill(&mut self, guest: &Guest, references: &[Reference]) -> (usize, bool) {
        let references = references.get(..MOST_REFERENCES).unwrap_or(references);
        self.format = guest.tables.format();
        self.accesses.take();
        let (mut taken, mut changes) = self.find_tables(guest, references);
        for found in &mut self.found {
            found.leaf = guest.tables.leaf(found.leaf_index);
        }
        if let Some(usable) = self.found.iter().position(|found| !found.is_usable(guest)) {
            (taken, changes) = (self.found[usable].number as usize, true);
            self.found.truncate(usable);
        }
        if let Some(found) = self.found.last() {
            self.followed(found.reference);
        }
        self.limit = if changes {
            SHORTEST
        } else {
            LONGEST.min(2 * self.limit)
        };
        (taken, changes)
    }

    /// The block with all that the guest's tables say.
    pub fn accesses(&self) -> &[Access] {
        self.accesses
            .get_or_init(|| self.found.iter().map(|found| self.access(found)).collect())
    }

    fn access(&self, found: &Found) -> Access {
        let (address, path) = (
            found.reference.address(),
            &self.paths[usize::from(found.slot)],
        );
        Access {
            address,
            write: found.reference.write(),
            found: found.leaf.translation(path, self.format, address),
        }
    }

    /// Records that a reference which the block could not take has been followed.
    pub fn followed(&mut self, reference: Reference) {
        self.last = Some((reference.address().0 >> PAGE_SHIFT, reference.write()));
    }

    /// Forgets the last page, because a TLB may have been emptied.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Finds the tables of the references, as far as they exist; returns the same as
    /// [`Self::fill`].
    fn find_tables(&mut self, guest: &Guest, references: &[Reference]) -> (usize, bool) {
        self.found.clear();
        self.number += 1;
        let mut last = self.last;
        let span = guest.tables.format().span(2);
        for (&reference, number) in references.iter().zip(0..) {
            let (address, write) = (reference.address(), reference.write());
            let page = address.0 >> PAGE_SHIFT;
            if last.is_some_and(|(before, written)| page == before && (written || !write)) {
                continue;
            }
            if self.found.len() == self.limit {
                return (number as usize, false);
            }
            let (slot, end) = match self.slot(guest, address, address.0 >> span) {
                Ok(found) => found,
                Err(changes) => return (number as usize, changes),
            };
            self.found.push(Found {
                reference,
                leaf: Leaf::default(),
                leaf_index: guest.tables.leaf_index(&end, address),
                number,
                slot,
                size: end.size(),
            });
            last = Some((page, write));
        }
        (references.len(), false)
    }

    /// The slot that remembers the path to the region's entries, and the path's end. Fails when
    /// there is no path and the guest has to make it (`true`), or when a reference of the block
    /// needs the slot (`false`).
    #[inline]
    fn slot(&mut self, guest: &Guest, address: Gva, region: u64) -> Result<(u16, End), bool> {
        let mixed = region ^ (region >> PATHS.trailing_zeros());
        let slot = u16::try_from(mixed % PATHS as u64).unwrap_or_default();
        let known = &self.known[usize::from(slot)];
        let held =
            known.region == region && known.root == guest.root && guest.tables.holds(&known.end);
        if !held {
            self.learn(guest, address, region, slot)?;
        }
        let known = &mut self.known[usize::from(slot)];
        known.block = self.number;
        Ok((slot, known.end))
    }

    /// Remembers another path in the slot.
    #[cold]
    #[inline(never)]
    fn learn(&mut self, guest: &Guest, address: Gva, region: u64, slot: u16) -> Result<(), bool> {
        let slot = usize::from(slot);
        if self.known[slot].block == self.number {
            return Err(false);
        }
        let path = guest.tables.path(guest.root, address).ok_or(true)?;
        self.known[slot] = Known {
            region,
            root: guest.root,
            block: self.number,
            end: path.end,
        };
        self.paths[slot] = path;
        Ok(())
    }
}

impl Known {
    /// No region has this number: regions are parts of addresses.
    const NOTHING: Self = Self {
        region: u64::MAX,
        root: Gfn(0),
        block: 0,
        end: Path::NONE.end,
    };
}

impl Found {
    /// Do the guest's tables translate the reference, to memory, without a change of any bit?
    #[inline]
    fn is_usable(&self, guest: &Guest) -> bool {
        let address = self.reference.address();
        self.leaf.allows(self.reference.write())
            && !guest.is_device_frame(address, self.leaf.frame(), self.size)
    }
}

impl Translated for Block {
    #[inline]
    fn seen(&self) -> impl Iterator<Item = Seen> {
        self.found.iter().map(|found| Seen {
            address: found.reference.address(),
            write: found.reference.write(),
            frame: found.leaf.frame(),
            size: found.size,
            writable: found.leaf.is_written(),
        })
    }

    #[inline]
    fn tables(&self, at: usize) -> Option<(&[Gfn; MAX_LEVELS], u8)> {
        let path = self.paths.get(usize::from(self.found.get(at)?.slot))?;
        Some((&path.tables, path.depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::{PageSize, TableFormat};
    use crate::model::guest::GuestSetup;
    use crate::model::guest_event::Translation;
    use crate::step::Operation;

    const SMALL: u64 = 1 << 32;
    const LARGE: u64 = 1 << 33;
    /// Regions 2,048 and 2,050 + 2^10 use the same slot for their paths.
    const SAME_PLACE: u64 = (2050 + 1024) << 21;

    fn guest(tables: TableFormat) -> Guest {
        let setup = GuestSetup {
            tables,
            memory_bytes: 1 << 30,
            isolation: false,
            pcid: false,
            map_on_touch: Some(PageSize::K4),
            fault_cycles: 1,
            system_call_cycles: 1,
            switch_cycles: 1,
        };
        Guest::new(setup).unwrap()
    }

    fn apply(guest: &mut Guest, operation: Operation) {
        guest.apply(&operation, &mut Vec::new()).unwrap();
    }

    /// What the guest's tables say about one reference, after its kernel's work.
    fn translate(guest: &mut Guest, address: Gva, write: bool) -> Translation {
        if let Ok(found) = guest.translate(address, write) {
            return found;
        }
        guest.handle_fault(address, write, &mut Vec::new()).unwrap();
        guest.translate(address, write).unwrap()
    }

    fn reference(random: &mut u64) -> Reference {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let start = [SMALL, SMALL, LARGE, SAME_PLACE][(*random >> 60) as usize % 4];
        let address = Gva(start + (*random & 0x3f_f000));
        Reference::new(address, (*random >> 50).is_multiple_of(4))
    }

    /// Changes the guest's tables between the rounds.
    fn change(guest: &mut Guest, round: u32) {
        match round {
            0 => apply(
                guest,
                Operation::Map {
                    start: Gva(LARGE),
                    bytes: 4 << 20,
                    size: PageSize::M2,
                },
            ),
            2 => apply(guest, Operation::Fork { child: 1 }),
            3 => apply(guest, Operation::Switch { process: 1 }),
            5 => apply(
                guest,
                Operation::Unmap {
                    start: Gva(LARGE),
                    bytes: 4 << 20,
                },
            ),
            _ => {}
        }
    }

    #[test]
    fn blocks_say_what_translating_one_by_one_says() {
        let (mut blocks, mut singly) = (guest(TableFormat::Four), guest(TableFormat::Four));
        let (mut block, mut random) = (Block::default(), 1);
        let (mut in_blocks, mut all) = (0, 0);
        for round in 0..8 {
            change(&mut blocks, round);
            change(&mut singly, round);
            block.forget();
            let references: Vec<_> = (0..5000).map(|_| reference(&mut random)).collect();
            let mut rest = &references[..];
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            while !rest.is_empty() {
                let (taken, changes) = block.fill(&blocks, rest);
                assert!(taken > 0 || changes);
                in_blocks += block.accesses().len();
                found.extend_from_slice(block.accesses());
                rest = &rest[taken..];
                if changes {
                    let (address, write) = (rest[0].address(), rest[0].write());
                    let translation = translate(&mut blocks, address, write);
                    found.push(Access {
                        address,
                        write,
                        found: translation,
                    });
                    block.followed(rest[0]);
                    rest = &rest[1..];
                }
            }
            let mut last = (u64::MAX, false);
            for reference in &references {
                let (address, write) = (reference.address(), reference.write());
                let page = address.0 >> PAGE_SHIFT;
                if page == last.0 && (last.1 || !write) {
                    continue;
                }
                last = (page, write);
                let found = translate(&mut singly, address, write);
                expected.push(Access {
                    address,
                    write,
                    found,
                });
            }
            assert_eq!(found, expected, "round {round}");
            all += found.len();
        }
        // If all references were followed one by one, the test would show nothing.
        assert!(in_blocks > all / 2, "{in_blocks} of {all}");
    }

    #[test]
    fn a_block_ends_before_a_reference_that_changes_the_guest() {
        let mut guest = guest(TableFormat::Two);
        translate(&mut guest, Gva(0x1000), false);
        let reads = [0x1000, 0x1008].map(|at| Reference::new(Gva(at), false));
        let write = Reference::new(Gva(0x1010), true);
        let mut block = Block::default();
        let references = [reads[0], reads[1], write, reads[0]];
        assert_eq!(block.fill(&guest, &references), (2, true));
        assert_eq!(block.accesses().len(), 1);
        translate(&mut guest, write.address(), true);
        assert_eq!(block.fill(&guest, &references[2..]), (2, false));
        assert!(block.accesses()[0].found.dirty);
    }
}
