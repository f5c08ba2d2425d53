//! `mmap-churn`: mappings of random sizes are made, change their protection and are unmapped.

use std::hint::black_box;

use serde_json::Map;

use crate::PAGE_BYTES;
use crate::bound::Bound;
use crate::cast;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{SEED, mem};
use crate::pattern;
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::memory::{map_pages, word_of};
use vtax_sys::calls::memory::Region;
use vtax_sys::terminal::Error;

/// Mappings that exist at a time.
const SLOTS: usize = 32;

/// Mappings between two looks at the clock.
const BATCH: u64 = 8;

/// Maps, touches, protects and unmaps memory.
#[derive(Debug)]
pub struct MmapChurn;

static DESCRIPTION: Description = Description {
    name: "mmap-churn",
    summary: "Maps memory of random sizes, touches it, makes it read-only (mprotect), reads it \
              and unmaps it, with 32 mappings alive",
    stresses: "Page tables made, changed and freed, and TLB flushes: exits and rebuilt shadow \
               page tables under shadow paging, almost nothing under nested paging",
    unit: "mappings",
    default_bound: Bound::Count(4_000),
    options: &[mem("4M", "Largest size of all mappings together"), SEED],
};

impl Workload for MmapChurn {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let bytes = job.parameters.number("mem");
        job.context.require_memory(bytes)?;
        let most_pages = (cast::index(bytes) / PAGE_BYTES / SLOTS).max(1);
        let mut churn = Churn::new(job.parameters.number("seed"), most_pages);
        let meter = Meter::start();
        while let Some(mappings) = job.limit.grant(BATCH) {
            (0..mappings).try_for_each(|_| churn.replace_one())?;
        }
        churn.end()?;
        let usage = meter.stop();
        let mut details = Map::new();
        details.insert("pages_touched".into(), churn.touched.into());
        details.insert("pages_wrong".into(), churn.wrong.into());
        Ok(Outcome {
            usage,
            operations: job.limit.done(),
            checksum: Some(churn.checksum.value()),
            verified: churn.wrong == 0,
            details,
        })
    }
}

struct Mapping {
    region: Region,
    seed: u64,
}

struct Churn {
    random: fastrand::Rng,
    most_pages: usize,
    live: Vec<Option<Mapping>>,
    touched: u64,
    wrong: u64,
    checksum: Checksum,
}

impl Churn {
    fn new(seed: u64, most_pages: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            most_pages,
            live: std::iter::repeat_with(|| None).take(SLOTS).collect(),
            touched: 0,
            wrong: 0,
            checksum: Checksum::new(),
        }
    }

    fn replace_one(&mut self) -> Result<(), Error> {
        let slot = self.random.usize(..SLOTS);
        let pages = self.random.usize(1..=self.most_pages);
        let seed = self.random.u64(..);
        if let Some(old) = self.live[slot].take() {
            self.check(old)?;
        }
        let mut region = map_pages(pages, false)?;
        let words = black_box(region.words_mut());
        for page in 0..cast::count(pages) {
            words[word_of(page)] = pattern::word(seed, page);
        }
        self.touched += cast::count(pages);
        self.live[slot] = Some(Mapping { region, seed });
        Ok(())
    }

    /// Read a mapping while it is read-only, write to it once more, and unmap it.
    fn check(&mut self, mapping: Mapping) -> Result<(), Error> {
        let Mapping { region, seed } = mapping;
        let (wrong, checksum) = (&mut self.wrong, &mut self.checksum);
        let look = |words: &[u64]| {
            let words = black_box(words);
            for page in 0..cast::count(words.len() * 8 / PAGE_BYTES) {
                let word = words[word_of(page)];
                *wrong += u64::from(word != pattern::word(seed, page));
                checksum.add(word);
            }
        };
        let (mut region, ()) = region
            .read_only(look)
            .map_err(|errno| Error::system("mprotect", errno, "see vm.max_map_count"))?;
        let words = black_box(region.words_mut());
        words[word_of(0)] = 0;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        let live = std::mem::take(&mut self.live);
        live.into_iter()
            .flatten()
            .try_for_each(|mapping| self.check(mapping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_keep_what_was_written_and_a_wrong_page_is_noticed() {
        let mut churn = Churn::new(1, 9);
        for _ in 0..200 {
            churn.replace_one().unwrap();
        }
        let live = churn.live.iter_mut().flatten().next().unwrap();
        live.region.words_mut()[word_of(0)] ^= 1;
        churn.end().unwrap();
        assert_eq!(churn.wrong, 1);
    }
}
