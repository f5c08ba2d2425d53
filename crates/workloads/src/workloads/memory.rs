//! Allocates the memory that a workload works on.

use nix::errno::Errno;

use crate::cast;
use crate::workload::Job;
use crate::{PAGE_BYTES, pattern};
use vtax_sys::calls::memory::Region;
use vtax_sys::terminal::Error;

pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// Cache lines of a page, and words of a line.
const LINES: u64 = 64;
const LINE_WORDS: u64 = 8;

/// Map `--mem`, with or without huge pages as `--huge` says.
///
/// Fails when that much memory is not available or cannot be mapped, or when huge pages are asked
/// for and the kernel has none.
pub fn map_mem(job: &Job<'_>) -> Result<Region, Error> {
    map(
        job,
        job.parameters.number("mem"),
        job.parameters.flag("huge"),
    )
}

/// Map `bytes` of memory, at least one page, if that much is available.
///
/// Fails when that much memory is not available or cannot be mapped, or when huge pages are asked
/// for and the kernel has none.
pub fn map(job: &Job<'_>, bytes: u64, huge: bool) -> Result<Region, Error> {
    job.context.require_memory(bytes)?;
    map_pages(cast::index(bytes) / PAGE_BYTES, huge)
}

/// Map pages of memory without checking what is available.
///
/// Fails when the memory cannot be mapped, or when huge pages are asked for and the kernel has
/// none.
pub fn map_pages(pages: usize, huge: bool) -> Result<Region, Error> {
    let mut region =
        Region::map(pages).map_err(|errno| Error::system("mmap", errno, "give less --mem"))?;
    match region.set_huge(huge) {
        // A kernel without huge pages refuses the call, but has none to avoid.
        Err(Errno::EINVAL) if !huge => Ok(region),
        Err(errno) => Err(Error::system(
            "--huge",
            errno,
            "leave it out, or use a kernel with transparent huge pages",
        )),
        Ok(()) => Ok(region),
    }
}

/// The word of a page that is read and written.
///
/// The word is in a different cache line from page to page: with the same line in each page, the
/// pages would compete for one set of the cache, and cache misses would hide the translation.
pub fn word_of(page: u64) -> usize {
    let line = page.wrapping_add(page / LINES) % LINES;
    cast::index(page) * PAGE_WORDS + cast::index(line * LINE_WORDS)
}

/// Fill words with the pattern of a seed.
pub fn fill(words: &mut [u64], seed: u64) {
    for (position, word) in words.iter_mut().enumerate() {
        *word = pattern::word(seed, cast::count(position));
    }
}
