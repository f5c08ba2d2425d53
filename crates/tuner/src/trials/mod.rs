//! The real trials: a candidate is compiled and verified, then timed on random matrices.

mod gemm;
mod level2;
mod recent;
mod stopwatch;

pub use gemm::{Form, FormName, GemmTrial};
pub use level2::{Level2Trial, Routine};
