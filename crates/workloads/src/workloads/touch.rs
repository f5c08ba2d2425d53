//! `sequential-touch` and `random-touch`: one read-modify-write for each visit to a page.

use std::hint::black_box;

use serde_json::Map;

use crate::PAGE_BYTES;
use crate::bound::Bound;
use crate::cast;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{HUGE, OptionSpec, SEED, mem};
use crate::pattern;
use crate::walk::Walk;
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::memory::{map_mem, word_of};
use vtax_sys::calls::memory::Region;
use vtax_sys::terminal::Error;

/// Visits between two looks at the clock.
const BATCH: u64 = 4096;

const OPTIONS: &[OptionSpec] = &[mem("16M", "Working set"), SEED, HUGE];

/// Visits pages in a sequential or a random order.
#[derive(Debug)]
pub struct Touch {
    description: Description,
    shuffled: bool,
}

/// Pages in the order of their addresses.
pub static SEQUENTIAL: Touch = Touch {
    description: Description {
        name: "sequential-touch",
        summary: "Adds to one word of each page of a working set, in the order of addresses",
        stresses: "One dTLB miss per page once the working set exceeds the TLB; neighbouring \
                   entries of one page table, which the caches keep",
        unit: "page touches",
        default_bound: Bound::Count(8_000_000),
        options: OPTIONS,
    },
    shuffled: false,
};

/// Pages in a random order.
pub static RANDOM: Touch = Touch {
    description: Description {
        name: "random-touch",
        summary: "Adds to one word of each page of a working set, in a random order that visits \
                  every page once before it visits one again",
        stresses: "One dTLB miss per page once the working set exceeds the TLB; scattered \
                   page-table entries, so that a nested walk costs most",
        unit: "page touches",
        default_bound: Bound::Count(8_000_000),
        options: OPTIONS,
    },
    shuffled: true,
};

impl Workload for Touch {
    fn description(&self) -> &'static Description {
        if self.shuffled {
            &RANDOM.description
        } else {
            &SEQUENTIAL.description
        }
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let seed = job.parameters.number("seed");
        let mut set = WorkingSet::new(map_mem(job)?, seed, self.shuffled);
        let meter = Meter::start();
        let mut walk = set.walk(0);
        while let Some(visits) = job.limit.grant(BATCH) {
            set.touch(&mut walk, visits);
        }
        let usage = meter.stop();
        let (checksum, expected) = set.checksums(job.limit.done());
        let mut details = Map::new();
        details.insert("pages".into(), set.pages.into());
        Ok(Outcome {
            usage,
            operations: job.limit.done(),
            checksum: Some(checksum),
            verified: checksum == expected,
            details,
        })
    }
}

struct WorkingSet {
    region: Region,
    pages: u64,
    seed: u64,
    shuffled: bool,
}

impl WorkingSet {
    /// Touches each page once, so that the measured visits find all of them present.
    fn new(mut region: Region, seed: u64, shuffled: bool) -> Self {
        let words = region.words_mut();
        let pages = cast::count(words.len() * 8 / PAGE_BYTES);
        for page in 0..pages {
            words[word_of(page)] = pattern::word(seed, page);
        }
        Self {
            region,
            pages,
            seed,
            shuffled,
        }
    }

    fn walk(&self, period: u64) -> Walk {
        if self.shuffled {
            Walk::shuffled(self.pages, self.seed, period)
        } else {
            Walk::ascending(self.pages)
        }
    }

    fn touch(&mut self, walk: &mut Walk, visits: u64) {
        let words = black_box(self.region.words_mut());
        for _ in 0..visits {
            let page = walk.step();
            let word = &mut words[word_of(page)];
            *word = word.wrapping_add(addend(page));
        }
    }

    /// The checksums of the memory, and of what it must contain after this many visits.
    ///
    /// A page was visited once in each whole period, and once more if it is among the first pages
    /// of the unfinished period.
    fn checksums(&self, visits: u64) -> (u64, u64) {
        let (periods, rest) = (visits / self.pages, visits % self.pages);
        let words = black_box(self.region.words());
        let mut walk = self.walk(periods);
        let (mut found, mut expected) = (Checksum::new(), Checksum::new());
        for position in 0..self.pages {
            let page = walk.step();
            let visits = periods + u64::from(position < rest);
            let added = addend(page).wrapping_mul(visits);
            found.add(words[word_of(page)]);
            expected.add(pattern::word(self.seed, page).wrapping_add(added));
        }
        (found.value(), expected.value())
    }
}

/// What a visit adds: an odd number that differs for each page, so that a visit to a wrong page
/// shows.
fn addend(page: u64) -> u64 {
    2 * page + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn touched(pages: usize, seed: u64, shuffled: bool, visits: u64) -> WorkingSet {
        let mut set = WorkingSet::new(Region::map(pages).unwrap(), seed, shuffled);
        let mut walk = set.walk(0);
        set.touch(&mut walk, visits);
        set
    }

    proptest! {
        #[test]
        fn visits_are_accounted_for_and_a_wrong_word_is_noticed(
            pages in 1..200_usize, seed in any::<u64>(), shuffled in any::<bool>(),
            visits in 0..1000_u64, at in any::<prop::sample::Index>(),
        ) {
            let mut set = touched(pages, seed, shuffled, visits);
            let (found, expected) = set.checksums(visits);
            prop_assert_eq!(found, expected);
            let page = cast::count(at.index(pages));
            set.region.words_mut()[word_of(page)] ^= 1 << 40;
            let (found, expected) = set.checksums(visits);
            prop_assert_ne!(found, expected);
        }
    }

    #[test]
    fn a_visit_too_few_is_noticed() {
        for shuffled in [false, true] {
            let set = touched(10, 3, shuffled, 24);
            let (found, expected) = set.checksums(25);
            assert_ne!(found, expected);
        }
    }
}
