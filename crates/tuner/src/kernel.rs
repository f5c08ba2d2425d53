//! GEMM on generated kernels.

use crate::element::Element;
use crate::error::Error;
use crate::parameters::Parameters;
use crate::problem::{MatrixMut, Problem, check};
use crate::processor::Processor;
use crate::unsafe_blocked::Blocked;
use crate::unsafe_micro::Micro;

/// Compiled kernels of GEMM for one set of parameters.
#[derive(Debug)]
pub struct Gemm<T: Element> {
    parameters: Parameters,
    blocked: Blocked<T>,
}

/// The number of multiplications that is worth a thread: 20 us of them, the time that starting a
/// thread takes.
const WORK_OF_A_THREAD: usize = 1 << 20;

impl<T: Element> Gemm<T> {
    /// Generate the kernel.
    ///
    /// Fails when the parameters are not valid for this processor, or memory is short.
    pub fn compile(parameters: &Parameters, processor: &Processor) -> Result<Self, Error> {
        parameters.is_valid_for(processor, T::PRECISION)?;
        let of = |value: u32| value as usize;
        let registers = (of(parameters.mu), of(parameters.nu));
        let caches = (of(parameters.mc), of(parameters.nb), of(parameters.nc));
        Ok(Self {
            parameters: *parameters,
            blocked: Blocked::new(Micro::compile(parameters)?, registers, caches),
        })
    }

    /// The parameters that the kernel was generated from.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// C = alpha op(A) op(B) + beta C on at most `threads` threads.
    ///
    /// Fails, before anything is written, with the number of the argument in DGEMM when a leading
    /// dimension or a matrix is too small, and when memory for the panels is short.
    pub fn run(
        &self,
        problem: &Problem<'_, T>,
        c: MatrixMut<'_, T>,
        threads: usize,
    ) -> Result<(), Error> {
        check(problem, &c)?;
        if problem.m == 0 || problem.n == 0 {
            return Ok(());
        }
        let product = problem.k > 0 && problem.alpha != T::ZERO;
        // The kernel itself overwrites C where beta is 0.
        if problem.beta != T::ONE && !(product && problem.beta == T::ZERO) {
            scale(problem, c.data, c.leading);
        }
        if !product {
            return Ok(());
        }
        let add = problem.beta != T::ZERO;
        let work = problem
            .m
            .saturating_mul(problem.n)
            .saturating_mul(problem.k);
        let threads = threads.min(work / WORK_OF_A_THREAD).max(1);
        self.blocked.run(problem, c.data, c.leading, add, threads)
    }
}

/// C = beta C; with beta 0, NaN does not survive.
fn scale<T: Element>(problem: &Problem<'_, T>, c: &mut [T], leading: usize) {
    for column in c.chunks_mut(leading).take(problem.n) {
        let column = &mut column[..problem.m];
        if problem.beta == T::ZERO {
            column.fill(T::ZERO);
        } else {
            for number in column {
                *number = *number * problem.beta;
            }
        }
    }
}
