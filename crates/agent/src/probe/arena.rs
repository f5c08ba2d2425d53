//! Memory to measure in, with a known page size.

use std::hint::black_box;

use vtax_sys::calls::memory::{PAGE_BYTES, Region};
use vtax_sys::tree::Tree;

use crate::probe::shuffle::shuffle;

/// The size of a huge page, on x86-64 and on arm64 with 4 KiB pages.
pub const HUGE_BYTES: usize = 2 << 20;
const WORD_BYTES: usize = 8;
pub const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB, by `madvise`; [`Arena::huge_share`] says how much of the memory they cover.
    Huge,
}

/// Private memory that begins at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Arena {
    region: Region,
    first: usize,
    words: usize,
}

impl Arena {
    /// Allocate this many bytes and touch each page; the error is the kernel's reason.
    pub fn new(bytes: usize, pages: Pages) -> Result<Self, String> {
        let whole = bytes.next_multiple_of(HUGE_BYTES) + HUGE_BYTES;
        let refused = |errno: nix::errno::Errno| format!("memory for it: {}", errno.desc());
        let mut region = Region::map(whole / PAGE_BYTES).map_err(refused)?;
        // A kernel without huge pages refuses both calls; the pages are small then in any case.
        let _ = region.set_huge(pages == Pages::Huge);
        let address = region.words().as_ptr().addr();
        let first = (address.next_multiple_of(HUGE_BYTES) - address) / WORD_BYTES;
        let mut arena = Self {
            region,
            first,
            words: bytes.next_multiple_of(PAGE_BYTES) / WORD_BYTES,
        };
        arena.touch(pages);
        Ok(arena)
    }

    /// Touch every page.
    ///
    /// Small pages are touched in a random order, so that neighbours are not neighbours in physical
    /// memory too: some processors hold such pages in one entry of the TLB (Zen: up to four).
    fn touch(&mut self, pages: Pages) {
        let count = u32::try_from(self.words / PAGE_WORDS).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..count).collect();
        if pages == Pages::Small {
            shuffle(&mut order);
        }
        touch_pages(self.words_mut(), &order);
    }

    /// Give all pages back; the error is the kernel's reason.
    pub fn drop_pages(&mut self) -> Result<(), nix::errno::Errno> {
        self.region.drop_pages()
    }

    pub fn words(&self) -> &[u64] {
        &self.region.words()[self.first..self.first + self.words]
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.region.words_mut()[self.first..self.first + self.words]
    }

    /// The share of this memory that is in huge pages, 0 to 1; the error says why it is unknown.
    pub fn huge_share(&self) -> Result<f64, String> {
        let maps = Tree::host().text("/proc/self/smaps");
        let maps = maps.ok_or("/proc/self/smaps cannot be read")?;
        let huge = huge_kib(&maps, self.words().as_ptr().addr());
        let huge = huge.ok_or("/proc/self/smaps does not have AnonHugePages for the memory")?;
        let all = u32::try_from(self.words * WORD_BYTES / 1024).unwrap_or(u32::MAX);
        Ok((f64::from(huge) / f64::from(all.max(1))).min(1.0))
    }
}

/// Write to the pages with these numbers, in this order.
pub fn touch_pages(words: &mut [u64], pages: &[u32]) {
    for page in pages {
        words[*page as usize * PAGE_WORDS] = 1;
    }
    black_box(words);
}

/// `AnonHugePages` of the mapping that holds an address, from the text of `/proc/PID/smaps`.
fn huge_kib(maps: &str, address: usize) -> Option<u32> {
    let mut inside = false;
    for line in maps.lines() {
        if let Some((begin, end)) = range(line) {
            inside = (begin..end).contains(&address);
        } else if let Some(rest) = line.strip_prefix("AnonHugePages:")
            && inside
        {
            return rest.trim().strip_suffix("kB")?.trim().parse().ok();
        }
    }
    None
}

/// `BEGIN-END ...` in hexadecimal, the head of a mapping.
fn range(line: &str) -> Option<(usize, usize)> {
    let (begin, rest) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(begin)?, number(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_touched_and_as_large_as_asked() {
        for pages in [Pages::Small, Pages::Huge] {
            let mut arena = Arena::new(5 << 20, pages).unwrap();
            assert_eq!(arena.words().as_ptr().addr() % HUGE_BYTES, 0);
            assert_eq!(arena.words_mut().len(), (5 << 20) / 8);
            let share = arena.huge_share();
            if pages == Pages::Small {
                assert!(share.clone().is_err() || share == Ok(0.0), "{share:?}");
            } else if let Ok(share) = share {
                assert!((0.0..=1.0).contains(&share));
            }
        }
    }

    #[test]
    fn the_mapping_with_the_address_counts() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nAnonHugePages:  2048 kB\n\
                    7000-9000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:  4096 kB\n";
        assert_eq!(huge_kib(maps, 0x2fff), Some(2048));
        assert_eq!(huge_kib(maps, 0x7000), Some(4096));
        assert_eq!(huge_kib(maps, 0x3000), None);
    }
}
