//! Calls the kernels of GEMV and GER: generated code for whole vectors of rows, Rust for the rest.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::element::Element;
use crate::error::Error;
use crate::machine::level2;
use crate::parameters::Level2;
use crate::processor::Processor;
use crate::unsafe_code_page::CodePage;
use crate::vector::Vector;

/// What is done with each column of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routine {
    /// GEMV: vector += column * number.
    Plain,
    /// GEMV with the matrix transposed: number = sum of column * vector.
    Transposed,
    /// GER: column += vector * number.
    Rank1,
}

/// The parameters: iterations, first column, bytes between columns, a number for each column, the
/// vector along the columns, iterations of one vector each.
type Code<T> = unsafe extern "C" fn(usize, *mut T, usize, *mut T, *mut T, usize);

/// Kernels of one routine: for YUNROLL columns, and for one.
#[derive(Debug)]
pub struct Columns<T> {
    code: Option<[CodePage; 2]>,
    routine: Routine,
    lanes: usize,
    x_unroll: usize,
    y_unroll: usize,
    element: PhantomData<fn(T)>,
}

/// The operands as pointers: the routine decides which of them is written.
#[derive(Debug, Clone, Copy)]
struct Operands<T> {
    a: *mut T,
    leading: usize,
    numbers: *mut T,
    vector: *mut T,
}

impl<T: Element> Columns<T> {
    pub fn compile(
        routine: Routine,
        parameters: &Level2,
        processor: &Processor,
    ) -> Result<Self, Error> {
        parameters.is_valid_for(processor)?;
        let fused = processor.fuses(parameters.vector);
        let generate = |columns| {
            let code = level2(routine, parameters, T::PRECISION, (columns, fused))?;
            CodePage::new(&code)
        };
        let code = match parameters.vector {
            Vector::Portable => None,
            _ => Some([generate(parameters.y_unroll)?, generate(1)?]),
        };
        Ok(Self {
            code,
            routine,
            lanes: parameters.vector.lanes(T::PRECISION) as usize,
            x_unroll: parameters.x_unroll as usize,
            y_unroll: parameters.y_unroll as usize,
            element: PhantomData,
        })
    }

    /// Compute `vector` += A `numbers`.
    pub fn plain(&self, a: &[T], leading: usize, numbers: &[T], vector: &mut [T]) {
        assert!(self.routine == Routine::Plain);
        check(a.len(), leading, vector.len(), numbers.len());
        let operands = Operands {
            a: a.as_ptr().cast_mut(),
            leading,
            numbers: numbers.as_ptr().cast_mut(),
            vector: vector.as_mut_ptr(),
        };
        // SAFETY: A has that many rows and columns; this routine writes only to `vector`.
        let done = unsafe { self.run(operands, vector.len(), numbers.len()) };
        for (column, number) in columns(a, leading).zip(numbers) {
            for (to, a) in vector[done..].iter_mut().zip(&column[done..]) {
                *to += *a * *number;
            }
        }
    }

    /// Compute `numbers` = A transposed times `vector`.
    pub fn transposed(&self, a: &[T], leading: usize, vector: &[T], numbers: &mut [T]) {
        assert!(self.routine == Routine::Transposed);
        check(a.len(), leading, vector.len(), numbers.len());
        let count = numbers.len();
        let mut lanes = vec![T::ZERO; count * self.lanes];
        let operands = Operands {
            a: a.as_ptr().cast_mut(),
            leading,
            numbers: lanes.as_mut_ptr(),
            vector: vector.as_ptr().cast_mut(),
        };
        // SAFETY: as above; this routine writes only to `lanes`, which has all lanes of each
        // column.
        let done = unsafe { self.run(operands, vector.len(), count) };
        let sums = columns(a, leading).zip(lanes.chunks_exact(self.lanes));
        for (number, (column, lanes)) in numbers.iter_mut().zip(sums) {
            let sum = lanes.iter().fold(T::ZERO, |sum, lane| sum + *lane);
            let rest = column[done..].iter().zip(&vector[done..]);
            *number = rest.fold(sum, |sum, (a, x)| sum + *a * *x);
        }
    }

    /// Compute A += `vector` `numbers` transposed.
    pub fn rank1(&self, a: &mut [T], leading: usize, vector: &[T], numbers: &[T]) {
        assert!(self.routine == Routine::Rank1);
        check(a.len(), leading, vector.len(), numbers.len());
        let operands = Operands {
            a: a.as_mut_ptr(),
            leading,
            numbers: numbers.as_ptr().cast_mut(),
            vector: vector.as_ptr().cast_mut(),
        };
        // SAFETY: as above; this routine writes only to A.
        let done = unsafe { self.run(operands, vector.len(), numbers.len()) };
        for (column, number) in a.chunks_mut(leading).zip(numbers) {
            for (to, x) in column[done..].iter_mut().zip(&vector[done..]) {
                *to += *x * *number;
            }
        }
    }

    /// Run the code over all columns; returns the number of rows that are done; the other rows
    /// remain.
    ///
    /// # Safety
    /// `a` has `rows` rows and `columns` columns, `vector` has `rows` numbers, and `numbers` has
    /// one for each column, or for the transposed routine as many as there are lanes; what the
    /// routine writes is borrowed mutably.
    unsafe fn run(&self, operands: Operands<T>, rows: usize, columns: usize) -> usize {
        let Some(code) = &self.code else { return 0 };
        let vectors = rows / self.lanes;
        let (iterations, rest) = (vectors / self.x_unroll, vectors % self.x_unroll);
        let wide = columns / self.y_unroll * self.y_unroll;
        let step = if self.routine == Routine::Transposed {
            self.lanes
        } else {
            1
        };
        let firsts = (0..wide)
            .step_by(self.y_unroll)
            .map(|first| (first, &code[0]));
        for (first, code) in firsts.chain((wide..columns).map(|first| (first, &code[1]))) {
            // SAFETY: the page holds a function of this type, and the caller guarantees the
            // operands' rows and columns.
            unsafe {
                let function: Code<T> = std::mem::transmute(code.start());
                function(
                    iterations,
                    operands.a.add(first * operands.leading),
                    operands.leading.wrapping_mul(size_of::<T>()),
                    operands.numbers.add(first * step),
                    operands.vector,
                    rest,
                );
            }
        }
        vectors * self.lanes
    }
}

/// Check what `run` relies on.
fn check(length: usize, leading: usize, rows: usize, columns: usize) {
    let needed = columns
        .checked_sub(1)
        .map_or(Some(0), |last| last.checked_mul(leading)?.checked_add(rows));
    assert!(leading >= rows && needed.is_some_and(|needed| needed <= length));
}

fn columns<T>(a: &[T], leading: usize) -> impl Iterator<Item = &[T]> {
    a.chunks(leading.max(1))
}
