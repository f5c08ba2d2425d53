//! GEMV and GER with generated kernels.

use crate::element::Element;
use crate::error::Error;
use crate::level2::{Gemv, Ger};
use crate::operands::Level2Operands;
use crate::parameters::Level2;
use crate::processor::Processor;
use crate::search::trial::{Measured, Rejected, Trial};
use crate::trials::recent::Recent;
use crate::trials::stopwatch::{Stopwatch, rejected};
use crate::verify_level2::{verify_gemv, verify_ger};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routine {
    /// y := A x.
    GemvN,
    /// y := A' x.
    GemvT,
    /// A := x y' + A.
    Ger,
}

impl Routine {
    pub const ALL: [Self; 3] = [Self::GemvN, Self::GemvT, Self::Ger];

    /// Its name without the precision.
    pub fn name(self) -> &'static str {
        match self {
            Self::GemvN => "gemv_n",
            Self::GemvT => "gemv_t",
            Self::Ger => "ger",
        }
    }
}

/// A compiled and verified kernel of one routine.
enum Kernel<T: Element> {
    Gemv(Gemv<T>, bool),
    Ger(Ger<T>),
}

impl<T: Element> Kernel<T> {
    fn make(of: Routine, parameters: &Level2, processor: &Processor) -> Result<Self, Error> {
        if of == Routine::Ger {
            let kernel = Ger::compile(parameters, processor)?;
            verify_ger(&kernel)?;
            return Ok(Self::Ger(kernel));
        }
        let kernel = Gemv::compile(parameters, processor)?;
        verify_gemv(&kernel)?;
        Ok(Self::Gemv(kernel, of == Routine::GemvT))
    }

    fn run(&self, operands: &mut Level2Operands<T>) -> Result<(), Error> {
        match self {
            Self::Gemv(kernel, transpose) => operands.gemv(kernel, *transpose),
            Self::Ger(kernel) => operands.ger(kernel),
        }
    }
}

/// Times a routine of level 2 on a square matrix.
pub struct Level2Trial<'a, T: Element> {
    processor: &'a Processor,
    routine: Routine,
    operands: Level2Operands<T>,
    kernels: Recent<Level2, Kernel<T>>,
    watch: Stopwatch,
}

impl<'a, T: Element> Level2Trial<'a, T> {
    /// A trial with a matrix of `size` rows and columns.
    pub fn new(processor: &'a Processor, routine: Routine, size: usize) -> Self {
        let rows = f64::from(u32::try_from(size).unwrap_or(u32::MAX));
        Self {
            processor,
            routine,
            operands: Level2Operands::new(size),
            kernels: Recent::new(),
            watch: Stopwatch::new(2.0 * rows * rows, 1),
        }
    }
}

impl<T: Element> Trial<Level2> for Level2Trial<'_, T> {
    fn gflops(&mut self, parameters: &Level2) -> Result<Measured, Rejected> {
        let (routine, processor) = (self.routine, self.processor);
        let kernel = self.kernels.get_or_make(parameters, |parameters| {
            Kernel::make(routine, parameters, processor).map_err(rejected)
        })?;
        let operands = &mut self.operands;
        self.watch.time(|| kernel.run(operands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Vector;

    #[test]
    fn every_routine_is_timed_and_what_does_not_compile_is_rejected() {
        let processor = Processor::this();
        for routine in Routine::ALL {
            let mut trial = Level2Trial::<f64>::new(&processor, routine, 20);
            let mut parameters = Level2 {
                vector: Vector::Portable,
                x_unroll: 2,
                y_unroll: 4,
            };
            assert!(trial.gflops(&parameters).unwrap().gflops > 0.0);
            parameters.y_unroll = 0;
            let Rejected(why) = trial.gflops(&parameters).unwrap_err();
            assert!(why.contains("YUNROLL = 0"), "{why}");
        }
    }
}
