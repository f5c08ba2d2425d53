//! The loops around the kernel (Goto and van de Geijn, Anatomy of High-Performance Matrix
//! Multiplication, 2008; Van Zee and van de Geijn, BLIS, 2015).
//!
//! The loops take nc columns of C at a time, and nb steps of K. That panel of B is packed once for
//! all threads, each of which packs its share. Then each thread takes the next mc rows of A, packs
//! them for itself, and runs the kernel over its block of C, where no other thread writes.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, OnceLock};
use std::{slice, thread};

use vtax_sys::calls::memory::Region;

use crate::element::Element;
use crate::error::Error;
use crate::pack::{Block, Form, pack};
use crate::problem::{Matrix, Problem};
use crate::unsafe_micro::{Micro, Place};

/// Panels are rounded up to lines.
const LINE: usize = 64;
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// Computes C = C + alpha A B by blocks; the panels are kept from one product to the next.
#[derive(Debug)]
pub struct Blocked<T> {
    micro: Micro<T>,
    mu: usize,
    nu: usize,
    mc: usize,
    nb: usize,
    nc: usize,
    workspaces: Mutex<Vec<Region>>,
}

/// The lengths of the blocks of one product, evened out so that the last block is not a small rest.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    mc: usize,
    nb: usize,
    nc: usize,
    threads: usize,
    /// Numbers in the packed panel of B.
    panel: usize,
    /// Numbers in one thread's packed block of A and its buffer for a block of C.
    block: usize,
}

/// What all threads of one product share.
struct Shared<'a, T> {
    problem: &'a Problem<'a, T>,
    c: *mut T,
    leading: usize,
    panel: *mut T,
    blocks: *mut T,
    lengths: Lengths,
    /// Does the first step of K add to C?
    add: bool,
    /// Set when all threads that could be started have started.
    team: OnceLock<Team>,
    /// The next block of rows, for even and odd panels of B.
    next: [AtomicUsize; 2],
}

/// The threads that work on one product.
struct Team {
    barrier: Barrier,
    threads: usize,
}

// SAFETY: threads write to different parts of C, of the panel and of the blocks, and read other
// threads' writes only after a barrier.
unsafe impl<T: Element> Sync for Shared<'_, T> {}

/// The length of pieces of at most `most`: all pieces but the last have this length, a multiple of
/// `unit`.
fn even(length: usize, most: usize, unit: usize, multiple: usize) -> usize {
    let most = most.max(1);
    let pieces = length.div_ceil(most).next_multiple_of(multiple);
    length.div_ceil(pieces).next_multiple_of(unit)
}

impl<T: Element> Blocked<T> {
    /// Make the loops around a kernel for blocks of mu x nu.
    pub fn new(
        micro: Micro<T>,
        (mu, nu): (usize, usize),
        (mc, nb, nc): (usize, usize, usize),
    ) -> Self {
        Self {
            micro,
            mu,
            nu,
            mc,
            nb,
            nc,
            workspaces: Mutex::new(Vec::new()),
        }
    }

    fn lengths(&self, problem: &Problem<'_, T>, threads: usize) -> Lengths {
        let threads = threads.clamp(1, problem.m.div_ceil(self.mu));
        let nb = even(problem.k, self.nb, 1, 1);
        let nc = even(problem.n, self.nc, self.nu, 1);
        let mc = even(problem.m, self.mc, self.mu, threads);
        let line = LINE / size_of::<T>();
        Lengths {
            mc,
            nb,
            nc,
            threads,
            panel: (nb * nc * self.micro.copies()).next_multiple_of(PAGE),
            // The kernel prefetches beyond the tile's end, but does not read there.
            block: (mc * nb + self.micro.tile()).next_multiple_of(line),
        }
    }

    /// Compute C = C + alpha A B, or C = alpha A B without `add`.
    ///
    /// The caller has checked the arguments, and that m, n and k are not zero; `c` has n columns of
    /// m numbers.
    pub fn run(
        &self,
        problem: &Problem<'_, T>,
        c: &mut [T],
        leading: usize,
        add: bool,
        threads: usize,
    ) -> Result<(), Error> {
        let lengths = self.lengths(problem, threads);
        let numbers = lengths.panel + lengths.block * lengths.threads;
        let mut workspace = self.workspace(numbers * size_of::<T>())?;
        let panel: *mut T = workspace.words_mut().as_mut_ptr().cast();
        let shared = Shared {
            problem,
            c: c.as_mut_ptr(),
            leading,
            panel,
            // SAFETY: the workspace contains the panel, followed by the blocks.
            blocks: unsafe { panel.add(lengths.panel) },
            lengths,
            add,
            team: OnceLock::new(),
            next: [AtomicUsize::new(0), AtomicUsize::new(0)],
        };
        thread::scope(|scope| {
            let shared = &shared;
            // Where the system gives no more threads, the existing ones do the work.
            let started = (1..lengths.threads).take_while(|index| {
                let index = *index;
                let work = move || self.work(shared, index, shared.team.wait());
                thread::Builder::new().spawn_scoped(scope, work).is_ok()
            });
            let threads = 1 + started.count();
            let barrier = Barrier::new(threads);
            let team = shared.team.get_or_init(|| Team { barrier, threads });
            self.work(shared, 0, team);
        });
        // No thread waits: a child that was forked while another thread held the lock would wait
        // for ever.
        if let Ok(mut kept) = self.workspaces.try_lock() {
            kept.push(workspace);
        }
        Ok(())
    }

    /// Memory of at least `bytes` bytes: the memory of an earlier product, or fresh pages.
    fn workspace(&self, bytes: usize) -> Result<Region, Error> {
        let kept = self.workspaces.try_lock().ok().and_then(|mut it| it.pop());
        let enough = kept.filter(|region| region.words().len() * 8 >= bytes);
        if let Some(region) = enough {
            return Ok(region);
        }
        let unit = if bytes >= HUGE_PAGE / 2 {
            HUGE_PAGE
        } else {
            PAGE
        };
        let failed = |errno| Error::Memory {
            what: "packed panels",
            errno,
        };
        let mut region = Region::map(bytes.next_multiple_of(unit) / PAGE).map_err(failed)?;
        // Without huge pages the product is slower, but right.
        let _ = region.set_huge(true);
        Ok(region)
    }

    fn work(&self, shared: &Shared<'_, T>, thread: usize, team: &Team) {
        let (problem, lengths) = (shared.problem, &shared.lengths);
        let mut turn = 0;
        for column in (0..problem.n).step_by(lengths.nc) {
            let columns = lengths.nc.min(problem.n - column);
            for start in (0..problem.k).step_by(lengths.nb) {
                let depth = lengths.nb.min(problem.k - start);
                let share = (thread, team.threads);
                self.pack_b(shared, share, (start, depth), (column, columns));
                team.barrier.wait();
                if thread == 0 {
                    // The other turn's counter: every thread has left that turn.
                    shared.next[(turn + 1) % 2].store(0, Ordering::Relaxed);
                }
                loop {
                    let block = shared.next[turn % 2].fetch_add(1, Ordering::Relaxed);
                    let row = block * lengths.mc;
                    if row >= problem.m {
                        break;
                    }
                    let rows = lengths.mc.min(problem.m - row);
                    self.block(
                        shared,
                        thread,
                        (row, rows),
                        (start, depth),
                        (column, columns),
                    );
                }
                team.barrier.wait();
                turn += 1;
            }
        }
    }

    /// Pack this thread's share of the panel of B, multiplied by alpha.
    fn pack_b(
        &self,
        shared: &Shared<'_, T>,
        (thread, threads): (usize, usize),
        (start, depth): (usize, usize),
        (column, columns): (usize, usize),
    ) {
        let problem = shared.problem;
        let form = Form {
            width: self.nu,
            copies: self.micro.copies(),
            scale: problem.alpha,
        };
        let numbers = depth * self.nu * form.copies;
        for index in (thread..columns.div_ceil(self.nu)).step_by(threads) {
            let first = index * self.nu;
            let width = self.nu.min(columns - first);
            let block = block(
                &problem.b,
                problem.transpose_b,
                (column + first, width),
                (start, depth),
            );
            // SAFETY: the panel has room for all columns, each thread writes different ones, and
            // readers wait at the barrier.
            let panel =
                unsafe { slice::from_raw_parts_mut(shared.panel.add(index * numbers), numbers) };
            pack(panel, &block, &form);
        }
    }

    /// Pack a block of A, and multiply it with the panel of B.
    fn block(
        &self,
        shared: &Shared<'_, T>,
        thread: usize,
        (row, rows): (usize, usize),
        (start, depth): (usize, usize),
        (column, columns): (usize, usize),
    ) {
        let problem = shared.problem;
        // SAFETY: each thread has its own block.
        let own = unsafe {
            let first = shared.blocks.add(thread * shared.lengths.block);
            slice::from_raw_parts_mut(first, shared.lengths.block)
        };
        let (packed, tile) = own.split_at_mut(shared.lengths.mc * shared.lengths.nb);
        let form = Form {
            width: self.mu,
            copies: 1,
            scale: T::ONE,
        };
        for (index, panel) in packed.chunks_mut(self.mu * depth).enumerate() {
            let first = index * self.mu;
            if first >= rows {
                break;
            }
            let width = self.mu.min(rows - first);
            let block = block(
                &problem.a,
                !problem.transpose_a,
                (row + first, width),
                (start, depth),
            );
            pack(panel, &block, &form);
        }
        let packed: *const T = packed.as_ptr();
        for right in (0..columns).step_by(self.nu) {
            for down in (0..rows).step_by(self.mu) {
                // SAFETY: the panels were packed with `depth` steps each, one after the other. The
                // block of C is inside C, whose size was checked, and in rows of this thread.
                unsafe {
                    let place = Place {
                        start: shared.c.add((column + right) * shared.leading + row + down),
                        leading: shared.leading,
                        rows: self.mu.min(rows - down),
                        columns: self.nu.min(columns - right),
                        add: shared.add || start > 0,
                    };
                    let a = packed.add(down * depth);
                    let b = shared.panel.add(right * depth * self.micro.copies());
                    self.micro.run(depth, a, b, &place, tile);
                }
            }
        }
    }
}

/// The part of A or B from which one panel is packed; `along`: its steps of K are stored columns.
fn block<'a, T>(
    matrix: &Matrix<'a, T>,
    along: bool,
    (first, width): (usize, usize),
    (start, depth): (usize, usize),
) -> Block<'a, T> {
    let from = if along {
        start * matrix.leading + first
    } else {
        first * matrix.leading + start
    };
    Block {
        data: &matrix.data[from..],
        leading: matrix.leading,
        along,
        width,
        depth,
    }
}
