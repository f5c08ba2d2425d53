//! Mappings, and the first touch of their pages.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::sync::atomic::Ordering;

use vtax_sys::calls::memory::{Mapping, PAGE_BYTES, Region};

use crate::prices::calls_unsafe::{heap_end, move_heap_end};
use crate::prices::measure::{Bench, Price};
use crate::prices::processes::Companion;
use crate::prices::tree::large;
use crate::prices::{Operation, operation};
use crate::probe::arena::{Arena, HUGE_BYTES, PAGE_WORDS, Pages, touch_pages};
use crate::probe::shuffle::shuffle;

/// 64 KiB: the kernel maps as many cached pages of a file at one fault.
const FEW: u32 = 16;
/// Pages that are touched at a time, in 1 MiB or in larger memory.
const SOME: u32 = 256;
/// 4 MiB.
const MANY: u32 = 1024;
/// Mappings that exist at a time.
const GROUP: u64 = 16;
/// 8 MiB, for huge pages.
const HUGE_MANY: u32 = 2048;

pub const TABLE: &[Operation] = &[
    operation("mmap", "anonymous 64 KiB", 1.0, |bench| {
        bench.making(GROUP, || Ok(Region::map(FEW as usize)?))
    })
    .of(64 << 10),
    operation("mmap", "64 KiB of a file of the system", 1.0, |bench| {
        let file = large()?;
        bench.making(GROUP, || Ok(map_file(&file, FEW)?))
    })
    .of(64 << 10),
    operation("munmap", "anonymous 64 KiB", 1.0, |bench| {
        let prepare = |(): &mut ()| (0..GROUP).map(|_| Ok(Region::map(FEW as usize)?)).collect();
        bench.staged(GROUP, (), prepare, |(), regions: &mut Vec<Region>| {
            regions.clear();
            Ok(())
        })
    })
    .of(64 << 10),
    operation(
        "mprotect",
        "one page, to read-only and back",
        1.0,
        |bench| {
            let mut page = Some(written(1)?);
            bench.groups(2, || {
                if let Some(old) = page.take() {
                    page = Some(old.read_only(|_| ())?.0);
                }
                Ok(())
            })
        },
    ),
    operation("brk", "not moved", 1.0, |bench| bench.always(heap_end)),
    operation("brk", "one page, up and back", 1.0, |bench| {
        bench.measure(|watch, count| {
            // It moves when memory is allocated for the batches.
            let (end, pairs) = (heap_end(), count.div_ceil(2));
            let both = || move_heap_end(end, PAGE_BYTES as u64);
            watch.time(|| (0..pairs).try_for_each(|_| both()))?;
            Ok(2 * pairs)
        })
    }),
    operation("fault_anonymous", "in order, 4 MiB", 0.0, |bench| {
        anonymous(bench, &in_order(MANY))
    }),
    operation("fault_anonymous", "in random order, 4 MiB", 0.0, |bench| {
        anonymous(bench, &in_random_order(MANY))
    }),
    operation("fault_anonymous", "new mapping, 64 KiB", 0.0, |bench| {
        let pages = in_order(FEW);
        bench.staged(
            FEW.into(),
            (),
            |()| small(FEW),
            |(), region| touch(region, &pages),
        )
    }),
    // One fault maps all pages of 64 KiB that are cached, where the kernel does so. The size is the
    // number of pages that are touched then.
    operation("fault_file", "one page of each 64 KiB", 0.0, |bench| {
        of_file(bench, 1)
    })
    .of(1),
    operation("fault_file", "a quarter of each 64 KiB", 0.0, |bench| {
        of_file(bench, 4)
    })
    .of(4),
    operation("fault_file", "all pages, in order", 0.0, |bench| {
        of_file(bench, FEW)
    })
    .of(16),
    operation("fault_cow", "private page of a file", 0.0, |bench| {
        let (file, pages) = (large()?, in_order(SOME));
        let prepare = |(): &mut ()| Ok(Region::map_private(&file, SOME as usize)?);
        bench.staged(SOME.into(), (), prepare, |(), region| touch(region, &pages))
    }),
    operation("fault_cow", "after fork", 0.0, |bench| {
        let pages = in_order(SOME);
        let prepare = |region: &mut Region| {
            touch(region, &pages)?;
            Companion::waiting()
        };
        bench.staged(SOME.into(), small(SOME)?, prepare, |region, _| {
            touch(region, &pages)
        })
    }),
    operation("fault_huge", "2 MiB", 0.0, huge).of(HUGE_BYTES as u64),
    // The kernel makes a page table for the one page of each 2 MiB, and frees it again.
    operation(
        "page_table",
        "made and freed, 4 to a mapping",
        0.0,
        |bench| {
            let pages = one_of_each_huge();
            bench.groups(pages.len() as u64, || touch(&mut small(HUGE_MANY)?, &pages))
        },
    ),
];

fn in_order(count: u32) -> Vec<u32> {
    (0..count).collect()
}

fn in_random_order(count: u32) -> Vec<u32> {
    let mut pages = in_order(count);
    shuffle(&mut pages);
    pages
}

/// The first page of each huge page.
fn one_of_each_huge() -> Vec<u32> {
    let step = HUGE_BYTES / PAGE_BYTES;
    in_order(HUGE_MANY).into_iter().step_by(step).collect()
}

fn map_file(file: &File, pages: u32) -> nix::Result<Mapping> {
    Mapping::new(file, pages as usize * PAGE_WORDS, false)
}

/// Memory in small pages, none of which was touched.
fn small(pages: u32) -> io::Result<Region> {
    let mut region = Region::map(pages as usize)?;
    // A kernel without huge pages refuses, and has none to avoid.
    let _ = region.set_huge(false);
    Ok(region)
}

/// The same, touched.
pub fn written(pages: u32) -> io::Result<Region> {
    let mut region = small(pages)?;
    touch(&mut region, &in_order(pages))?;
    Ok(region)
}

#[expect(clippy::unnecessary_wraps, reason = "as other work")]
fn touch(region: &mut Region, pages: &[u32]) -> io::Result<()> {
    touch_pages(region.words_mut(), pages);
    Ok(())
}

fn anonymous(bench: &Bench, pages: &[u32]) -> io::Result<Price> {
    let mut parts = pages.chunks_exact(SOME as usize).cycle();
    let prepare = |region: &mut Region| Ok(region.drop_pages()?);
    bench.staged(SOME.into(), small(MANY)?, prepare, |region, ()| {
        touch(region, parts.next().unwrap_or_default())
    })
}

fn load(map: &Mapping, pages: &[u32]) {
    for page in pages {
        black_box(map.load(*page as usize * PAGE_WORDS, Ordering::Relaxed));
    }
}

/// What it takes to touch some pages of each 64 KiB of a file: one fault natively. A kernel that maps
/// single pages takes as many as are touched, and all of them are in the price.
fn of_file(bench: &Bench, touched: u32) -> io::Result<Price> {
    let file = large()?;
    let step = (FEW / touched) as usize;
    let pages: Vec<u32> = in_order(SOME).into_iter().step_by(step).collect();
    let map = |(): &mut ()| Ok(map_file(&file, SOME)?);
    bench.staged(u64::from(SOME / FEW), (), map, |(), map| {
        load(map, &pages);
        Ok(())
    })
}

fn huge(bench: &mut Bench) -> io::Result<Price> {
    let pages = one_of_each_huge();
    let arena = Arena::new(pages.len() * HUGE_BYTES, Pages::Huge).map_err(io::Error::other)?;
    if arena.huge_share().map_err(io::Error::other)? < 1.0 {
        return Err(io::Error::other("the kernel gives no huge pages"));
    }
    let prepare = |arena: &mut Arena| Ok(arena.drop_pages()?);
    bench.staged(pages.len() as u64, arena, prepare, |arena, ()| {
        touch_pages(arena.words_mut(), &pages);
        Ok(())
    })
}
