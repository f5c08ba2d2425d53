//! Calls the kernel of GEMM: generated code, or Rust where there is none.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::slice;

use crate::element::Element;
use crate::error::Error;
use crate::machine::gemm;
use crate::parameters::Parameters;
use crate::portable;
use crate::unsafe_code_page::CodePage;
use crate::vector::Vector;

/// The parameters: steps of K, panel of A, panel of B, block of C, bytes between its columns,
/// whether to add to it.
type Code<T> = unsafe extern "C" fn(usize, *const T, *const T, *mut T, usize, usize);

/// A block of C in memory.
#[derive(Debug, Clone, Copy)]
pub struct Place<T> {
    pub start: *mut T,
    /// The distance from one of its columns to the next, in numbers.
    pub leading: usize,
    /// Its rows that belong to C, at most mu.
    pub rows: usize,
    /// Its columns that belong to C, at most nu.
    pub columns: usize,
    /// Add to C; otherwise C is overwritten without being read.
    pub add: bool,
}

/// The kernel for one block of mu x nu numbers.
#[derive(Debug)]
pub struct Micro<T> {
    code: Option<CodePage>,
    mu: usize,
    nu: usize,
    muladd: bool,
    copies: usize,
    element: PhantomData<fn(T)>,
}

impl<T: Element> Micro<T> {
    pub fn compile(parameters: &Parameters) -> Result<Self, Error> {
        // SSE2 has no broadcast from memory, so B is packed with one copy for each lane.
        let copies = match parameters.vector {
            Vector::Sse2 => parameters.vector.lanes(T::PRECISION),
            _ => 1,
        };
        let code = match parameters.vector {
            Vector::Portable => None,
            _ => Some(CodePage::new(&gemm(parameters, T::PRECISION, copies)?)?),
        };
        Ok(Self {
            code,
            mu: parameters.mu as usize,
            nu: parameters.nu as usize,
            muladd: parameters.muladd,
            copies: copies as usize,
            element: PhantomData,
        })
    }

    /// The number of copies of each number of B in its packed panel.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// The size of the buffer that [`Self::run`] needs, in numbers.
    pub fn tile(&self) -> usize {
        self.mu * self.nu
    }

    /// Multiply two panels of `depth` steps into a block of C.
    ///
    /// # Safety
    /// `a` points to `depth` * mu numbers, `b` to `depth` * nu * copies, and `place` to memory that
    /// nothing else uses during the call.
    pub unsafe fn run(
        &self,
        depth: usize,
        a: *const T,
        b: *const T,
        place: &Place<T>,
        tile: &mut [T],
    ) {
        let whole = place.rows == self.mu && place.columns == self.nu;
        if let (true, Some(code)) = (whole, &self.code) {
            // SAFETY: the code has this type; the caller guarantees the pointers.
            unsafe { call(code, depth, (a, b), place.start, place.leading, place.add) };
            return;
        }
        if let Some(code) = &self.code {
            assert!(tile.len() >= self.tile());
            // SAFETY: as above, and the buffer holds a whole block.
            unsafe { call(code, depth, (a, b), tile.as_mut_ptr(), self.mu, false) };
        } else {
            // SAFETY: the caller guarantees the length of the panels.
            let (a, b) = unsafe {
                (
                    slice::from_raw_parts(a, depth * self.mu),
                    slice::from_raw_parts(b, depth * self.nu),
                )
            };
            portable::multiply(self.muladd, (self.mu, self.nu), a, b, tile);
        }
        for (column, sums) in tile.chunks_exact(self.mu).take(place.columns).enumerate() {
            // SAFETY: the block has that many rows and columns, and nothing else uses it.
            let c = unsafe {
                slice::from_raw_parts_mut(place.start.add(column * place.leading), place.rows)
            };
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = if place.add { *c + *sum } else { *sum };
            }
        }
    }
}

/// # Safety
/// As [`Micro::run`]; `c` has a whole block.
unsafe fn call<T>(
    code: &CodePage,
    depth: usize,
    (a, b): (*const T, *const T),
    c: *mut T,
    leading: usize,
    add: bool,
) {
    // SAFETY: the page holds a function of this type, generated for these parameters.
    let function: Code<T> = unsafe { std::mem::transmute(code.start()) };
    // A single column may have any leading dimension, which is not used then. SAFETY: the caller
    // guarantees it.
    unsafe {
        function(
            depth,
            a,
            b,
            c,
            leading.wrapping_mul(size_of::<T>()),
            usize::from(add),
        );
    }
}
