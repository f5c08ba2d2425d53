//! `fault-storm`: fresh memory is touched and given back, again and again.

use std::hint::black_box;

use serde_json::{Map, Value};

use crate::PAGE_BYTES;
use crate::bound::Bound;
use crate::cast;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{SEED, mem};
use crate::pattern;
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::memory::{map, word_of};
use vtax_sys::calls::memory::Region;
use vtax_sys::terminal::Error;

/// Touches every page of fresh memory, gives all of it back, and begins again.
#[derive(Debug)]
pub struct FaultStorm;

static DESCRIPTION: Description = Description {
    name: "fault-storm",
    summary: "Touches every page of fresh memory, gives all back with MADV_DONTNEED, again",
    stresses: "Page faults and changes of page-table entries: each is intercepted under shadow \
               paging, none under nested paging once the guest's memory is backed",
    unit: "page faults",
    default_bound: Bound::Count(100_000),
    options: &[
        mem("4M", "Memory that is touched before it is given back"),
        SEED,
    ],
};

impl Workload for FaultStorm {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let region = map(job, job.parameters.number("mem"), false)?;
        let mut storm = Storm::new(region, job.parameters.number("seed"));
        let meter = Meter::start();
        while let Some(pages) = job.limit.grant(storm.pages) {
            storm.pass(pages)?;
        }
        let usage = meter.stop();
        let expected = storm.expected(job.limit.done());
        let mut details = Map::new();
        details.insert("passes".into(), storm.passes.into());
        details.insert("pages_not_zero".into(), Value::from(storm.not_zero));
        Ok(Outcome {
            usage,
            operations: job.limit.done(),
            checksum: Some(storm.checksum.value()),
            verified: storm.not_zero == 0 && storm.checksum == expected,
            details,
        })
    }
}

struct Storm {
    region: Region,
    pages: u64,
    seed: u64,
    passes: u64,
    /// Fresh pages that were not zero.
    not_zero: u64,
    checksum: Checksum,
}

impl Storm {
    fn new(region: Region, seed: u64) -> Self {
        let pages = cast::count(region.words().len() * 8 / PAGE_BYTES);
        Self {
            region,
            pages,
            seed,
            passes: 0,
            not_zero: 0,
            checksum: Checksum::new(),
        }
    }

    /// Touch the first `pages` pages, read them back and give all back.
    fn pass(&mut self, pages: u64) -> Result<(), Error> {
        self.touch(pages);
        let words = black_box(self.region.words());
        self.checksum
            .extend((0..pages).map(|page| words[word_of(page)]));
        self.passes += 1;
        self.region
            .drop_pages()
            .map_err(|errno| Error::system("madvise", errno, "report this as a bug"))
    }

    fn touch(&mut self, pages: u64) {
        let first = self.passes * self.pages;
        let words = black_box(self.region.words_mut());
        for page in 0..pages {
            let at = word_of(page);
            words[at] = pattern::word(self.seed, first + page);
            // The write comes first: a read would map the zero page, and the write would be a
            // second fault.
            let words = black_box(&mut *words);
            self.not_zero += u64::from(words[at + 1] != 0);
        }
    }

    /// The expected checksum. Every pass but the last has all pages, so the touches are numbered
    /// without a gap.
    fn expected(&self, touches: u64) -> Checksum {
        let mut checksum = Checksum::new();
        checksum.extend((0..touches).map(|touch| pattern::word(self.seed, touch)));
        checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_pages_are_zero_and_hold_what_was_written() {
        let mut storm = Storm::new(Region::map(20).unwrap(), 5);
        for pages in [20, 20, 7] {
            storm.pass(pages).unwrap();
        }
        assert_eq!(storm.not_zero, 0);
        assert_eq!(storm.checksum, storm.expected(47));
        assert_ne!(storm.checksum, storm.expected(46));
    }

    #[test]
    fn a_page_that_is_not_fresh_is_noticed() {
        let mut storm = Storm::new(Region::map(20).unwrap(), 5);
        storm.region.words_mut()[word_of(3) + 1] = 1;
        storm.pass(20).unwrap();
        assert_eq!(storm.not_zero, 1);
    }
}
