//! Two levels of data TLB.
//!
//! A level without an array for a page's size holds the page in pieces of the largest smaller size
//! for which it has one (an assumption: manuals say little about it); without any such array it
//! does not hold the page.

use super::array::Array;
use super::tag::Key;
use crate::model::address::{Gva, PageSize};
use crate::model::machine::{TlbArray, Tlbs};

/// Where a translation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the first level.
    First,
    /// In the second level; afterwards it is in the first level too.
    Second,
    /// In neither: a walk follows.
    Missed,
}

/// Both TLB levels.
pub struct Tlb {
    first: Level,
    second: Level,
}

struct Level {
    arrays: Vec<Array>,
    by_size: [Home; 3],
}

/// Where a level holds pages of a size.
#[derive(Clone, Copy)]
struct Home {
    /// Beyond the arrays when the level does not hold pages of this size.
    array: usize,
    shift: u32,
    kind: u8,
}

impl Tlb {
    /// Empty TLBs. `seed` is for random replacement.
    pub fn new(tlbs: &Tlbs, seed: u64) -> Self {
        Self {
            first: Level::new(&tlbs.l1, seed),
            second: Level::new(&tlbs.l2, seed.wrapping_add(tlbs.l1.len() as u64)),
        }
    }

    /// Looks for the page of `size` around `address`. An entry that forbids writes is no hit for a
    /// write: the walker has to set the dirty bit or find the fault.
    #[inline]
    pub fn look_up(&mut self, address: Gva, size: PageSize, space: u16, write: bool) -> Found {
        if self.first.look_up(address, size, space, write).is_some() {
            return Found::First;
        }
        let Some(writable) = self.second.look_up(address, size, space, write) else {
            return Found::Missed;
        };
        self.first.insert(address, size, space, writable);
        Found::Second
    }

    /// Fills both levels after a walk, when the page is in neither.
    #[inline]
    pub fn insert(&mut self, address: Gva, size: PageSize, space: u16, writable: bool) {
        self.first.insert(address, size, space, writable);
        self.second.insert(address, size, space, writable);
    }

    /// Drops the entries for `address`, whatever their size.
    pub fn remove(&mut self, address: Gva, space: u16) {
        for size in PageSize::ALL {
            self.first.remove(address, size, space);
            self.second.remove(address, size, space);
        }
    }

    pub fn clear(&mut self) {
        let arrays = self.first.arrays.iter_mut().chain(&mut self.second.arrays);
        arrays.for_each(Array::clear);
    }
}

impl Level {
    fn new(arrays: &[TlbArray], seed: u64) -> Self {
        let home = |size: PageSize| {
            let sizes = PageSize::ALL.into_iter().rev().filter(|&held| held <= size);
            let held = sizes.into_iter().find_map(|size| {
                let array = arrays
                    .iter()
                    .position(|array| array.pages.contains(&size))?;
                Some((array, size))
            });
            let (array, size) = held.unwrap_or((usize::MAX, size));
            Home {
                array,
                shift: size.shift(),
                kind: size as u8,
            }
        };
        let by_size = PageSize::ALL.map(home);
        let arrays = arrays.iter().zip(0..).map(|(array, at)| {
            let seed = seed.wrapping_add(at);
            Array::new(array.entries, array.ways, array.replacement, seed)
        });
        Self {
            arrays: arrays.collect(),
            by_size,
        }
    }

    #[inline]
    fn find(&mut self, address: Gva, size: PageSize, space: u16) -> Option<(&mut Array, Key)> {
        let home = self.by_size[size as usize];
        let key = Key::new(address.0 >> home.shift, home.kind, space);
        Some((self.arrays.get_mut(home.array)?, key))
    }

    #[inline]
    fn look_up(&mut self, address: Gva, size: PageSize, space: u16, write: bool) -> Option<bool> {
        let (array, key) = self.find(address, size, space)?;
        array.look_up(key, write)
    }

    #[inline]
    fn insert(&mut self, address: Gva, size: PageSize, space: u16, writable: bool) {
        if let Some((array, key)) = self.find(address, size, space) {
            array.insert(key, writable);
        }
    }

    fn remove(&mut self, address: Gva, size: PageSize, space: u16) {
        if let Some((array, key)) = self.find(address, size, space) {
            array.remove(key);
        }
    }
}
