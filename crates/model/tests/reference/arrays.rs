//! Sets of entries whose ways are searched one by one.

use vtax_model::model::address::PageSize;
use vtax_model::model::machine::{CacheLevel, Replacement, TlbArray, Tlbs};

/// A set-associative array of tags `T` with a flag each.
pub struct Array<T> {
    sets: Vec<Set<T>>,
    replacement: Replacement,
    random: u64,
}

struct Set<T> {
    ways: Vec<Option<(T, bool)>>,
    /// The ways in the order of their last use, the oldest first.
    uses: Vec<usize>,
    /// The inner nodes of the tree, in heap order; node 0 is the root. True: the node points right.
    tree: Vec<bool>,
}

impl<T: PartialEq> Array<T> {
    pub fn new(entries: u32, ways: u32, replacement: Replacement, seed: u64) -> Self {
        let set = |_| Set {
            ways: (0..ways).map(|_| None).collect(),
            uses: Vec::new(),
            tree: vec![false; ways as usize],
        };
        // SplitMix64's finaliser, then xorshift64*.
        let mut random = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        random = (random ^ (random >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        random = (random ^ (random >> 31)) | 1;
        Self {
            sets: (0..entries / ways).map(set).collect(),
            replacement,
            random,
        }
    }

    /// The flag of the tag's entry. An entry without the flag is dropped when the flag is needed.
    pub fn find(&mut self, number: u64, tag: &T, needed: bool) -> Option<bool> {
        let set = self.set(number);
        let way = set.way_of(tag)?;
        let flag = set.ways[way].as_ref()?.1;
        if needed && !flag {
            set.ways[way] = None;
            return None;
        }
        set.touch(way);
        Some(flag)
    }

    pub fn insert(&mut self, number: u64, tag: T, flag: bool) {
        let replacement = self.replacement;
        let mut random = self.random;
        let set = self.set(number);
        assert!(set.way_of(&tag).is_none(), "inserted twice");
        let empty = set.ways.iter().position(Option::is_none);
        let way = empty.unwrap_or_else(|| match replacement {
            Replacement::Lru => set.uses[0],
            Replacement::TreePlru => set.pointed_to(),
            Replacement::Random => {
                random ^= random >> 12;
                random ^= random << 25;
                random ^= random >> 27;
                let high = random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
                ((high * set.ways.len() as u64) >> 32) as usize
            }
        });
        set.ways[way] = Some((tag, flag));
        set.touch(way);
        self.random = random;
    }

    pub fn remove(&mut self, number: u64, tag: &T) {
        let set = self.set(number);
        if let Some(way) = set.way_of(tag) {
            set.ways[way] = None;
        }
    }

    pub fn clear(&mut self) {
        for set in &mut self.sets {
            set.ways.iter_mut().for_each(|way| *way = None);
            set.uses.clear();
            set.tree.fill(false);
        }
    }

    fn set(&mut self, number: u64) -> &mut Set<T> {
        let sets = self.sets.len() as u64;
        &mut self.sets[(number % sets) as usize]
    }
}

impl<T: PartialEq> Set<T> {
    fn way_of(&self, tag: &T) -> Option<usize> {
        let held = |way: &Option<(T, bool)>| way.as_ref().is_some_and(|(held, _)| held == tag);
        self.ways.iter().position(held)
    }

    fn touch(&mut self, way: usize) {
        self.uses.retain(|&used| used != way);
        self.uses.push(way);
        if self.ways.len().is_power_of_two() {
            self.point_away(0, 0, self.ways.len(), way);
        }
    }

    /// Makes the subtree `node` over `count` ways from `first` point away from `way`.
    fn point_away(&mut self, node: usize, first: usize, count: usize, way: usize) {
        if count == 1 {
            return;
        }
        let half = count / 2;
        self.tree[node] = way < first + half;
        if way < first + half {
            self.point_away(2 * node + 1, first, half, way);
        } else {
            self.point_away(2 * node + 2, first + half, half, way);
        }
    }

    fn pointed_to(&self) -> usize {
        let (mut node, mut first, mut count) = (0, 0, self.ways.len());
        while count > 1 {
            count /= 2;
            let right = self.tree[node];
            first += if right { count } else { 0 };
            node = 2 * node + if right { 2 } else { 1 };
        }
        first
    }
}

/// What distinguishes TLB entries: size, page number, address space.
type Page = (PageSize, u64, u64);
type Arrays = Vec<(Vec<PageSize>, Array<Page>)>;

/// Both levels of TLB.
pub struct Tlb {
    levels: [Arrays; 2],
}

impl Tlb {
    pub fn new(tlbs: &Tlbs, seed: u64) -> Self {
        let mut number = 0;
        let mut array = |array: &TlbArray| {
            let seed = seed.wrapping_add(number);
            number += 1;
            let held = Array::new(array.entries, array.ways, array.replacement, seed);
            (array.pages.clone(), held)
        };
        let first = tlbs.l1.iter().map(&mut array).collect();
        let second = tlbs.l2.iter().map(&mut array).collect();
        Self {
            levels: [first, second],
        }
    }

    /// The level that has the page; the page is in both levels afterwards.
    pub fn find(&mut self, address: u64, size: PageSize, space: u64, write: bool) -> Option<u8> {
        let [first, second] = &mut self.levels;
        if look_up(first, address, size, space, write).is_some() {
            return Some(1);
        }
        let flag = look_up(second, address, size, space, write)?;
        fill(first, address, size, space, flag);
        Some(2)
    }

    pub fn insert(&mut self, address: u64, size: PageSize, space: u64, writable: bool) {
        for level in &mut self.levels {
            fill(level, address, size, space, writable);
        }
    }

    pub fn remove(&mut self, address: u64, space: u64) {
        for (_, array) in self.levels.iter_mut().flatten() {
            for size in PageSize::ALL {
                let number = address >> size.shift();
                array.remove(number, &(size, number, space));
            }
        }
    }

    pub fn clear(&mut self) {
        self.levels
            .iter_mut()
            .flatten()
            .for_each(|(_, array)| array.clear());
    }
}

fn look_up(
    level: &mut Arrays,
    address: u64,
    size: PageSize,
    space: u64,
    write: bool,
) -> Option<bool> {
    let (array, size) = home(level, size)?;
    let number = address >> size.shift();
    array.find(number, &(size, number, space), write)
}

fn fill(level: &mut Arrays, address: u64, size: PageSize, space: u64, flag: bool) {
    if let Some((array, size)) = home(level, size) {
        let number = address >> size.shift();
        array.insert(number, (size, number, space), flag);
    }
}

/// How a level holds pages of a size: whole, or in pieces of the next size that it supports.
fn home(level: &mut Arrays, size: PageSize) -> Option<(&mut Array<Page>, PageSize)> {
    let sizes: Vec<PageSize> = level.iter().flat_map(|(sizes, _)| sizes).copied().collect();
    let held = sizes.into_iter().filter(|&held| held <= size).max()?;
    let (_, array) = level.iter_mut().find(|(sizes, _)| sizes.contains(&held))?;
    Some((array, held))
}

/// One level of data cache: the lines of each set, the newest first.
pub struct Lines {
    sets: Vec<Vec<u64>>,
    line: u64,
    ways: usize,
}

impl Lines {
    pub fn new(level: &CacheLevel) -> Self {
        let sets = level.bytes / u64::from(level.line) / u64::from(level.ways);
        Self {
            sets: vec![Vec::new(); sets as usize],
            line: u64::from(level.line),
            ways: level.pte_ways as usize,
        }
    }

    /// Was the line there? It is the newest afterwards.
    pub fn read(&mut self, address: u64) -> bool {
        let line = address / self.line;
        let sets = self.sets.len() as u64;
        let set = &mut self.sets[(line % sets) as usize];
        let found = set.iter().position(|&held| held == line);
        if let Some(at) = found {
            set.remove(at);
        }
        set.insert(0, line);
        set.truncate(self.ways);
        found.is_some()
    }
}
