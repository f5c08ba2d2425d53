//! Square products with generated kernels.

use crate::element::Element;
use crate::kernel::Gemm;
use crate::operands::GemmOperands;
use crate::parameters::Parameters;
use crate::processor::Processor;
use crate::search::trial::{Measured, Rejected, Trial};
use crate::trials::recent::Recent;
use crate::trials::stopwatch::{Stopwatch, rejected};
use crate::verify::verify_gemm;

/// GEMM in one form of transposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub parameters: Parameters,
    pub transpose_a: bool,
    pub transpose_b: bool,
}

/// The name of a form, and whether it transposes A and B.
pub type FormName = (&'static str, bool, bool);

impl Form {
    /// All four forms, with ATLAS's names: `nn`, `nt`, `tn` and `tt`.
    pub const NAMES: [FormName; 4] = [
        ("nn", false, false),
        ("nt", false, true),
        ("tn", true, false),
        ("tt", true, true),
    ];
}

/// Times C := A B on square matrices.
pub struct GemmTrial<'a, T: Element> {
    processor: &'a Processor,
    threads: usize,
    operands: GemmOperands<T>,
    kernels: Recent<Parameters, Gemm<T>>,
    watch: Stopwatch,
}

impl<'a, T: Element> GemmTrial<'a, T> {
    /// A trial with matrices of `size` rows and columns.
    pub fn new(processor: &'a Processor, size: usize, threads: usize) -> Self {
        let rows = f64::from(u32::try_from(size).unwrap_or(u32::MAX));
        Self {
            processor,
            threads,
            operands: GemmOperands::new(size),
            kernels: Recent::new(),
            watch: Stopwatch::new(2.0 * rows.powi(3), threads),
        }
    }
}

impl<T: Element> Trial<Form> for GemmTrial<'_, T> {
    fn gflops(&mut self, form: &Form) -> Result<Measured, Rejected> {
        let kernel = self.kernels.get_or_make(&form.parameters, |parameters| {
            let kernel = Gemm::compile(parameters, self.processor).map_err(rejected)?;
            verify_gemm(&kernel).map_err(rejected)?;
            Ok(kernel)
        })?;
        let transposed = (form.transpose_a, form.transpose_b);
        let (operands, threads) = (&mut self.operands, self.threads);
        self.watch
            .time(|| operands.multiply(kernel, transposed, threads))
    }
}

impl<T: Element> Trial<Parameters> for GemmTrial<'_, T> {
    fn gflops(&mut self, parameters: &Parameters) -> Result<Measured, Rejected> {
        self.gflops(&Form {
            parameters: *parameters,
            transpose_a: false,
            transpose_b: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Precision;

    #[test]
    fn every_form_is_timed_and_what_does_not_compile_is_rejected() {
        let processor = Processor::this();
        let mut trial = GemmTrial::<f32>::new(&processor, 20, 2);
        let model = Parameters::model(&processor, Precision::Single);
        for (_, transpose_a, transpose_b) in Form::NAMES {
            let form = Form {
                parameters: model,
                transpose_a,
                transpose_b,
            };
            assert!(trial.gflops(&form).unwrap().gflops > 0.0);
        }
        let wrong = Parameters { nb: 0, ..model };
        let Rejected(why) = trial.gflops(&wrong).unwrap_err();
        assert!(why.contains("NB = 0"), "{why}");
    }
}
