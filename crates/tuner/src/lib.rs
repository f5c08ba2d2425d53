//! Matrix kernels in the manner of ATLAS, generated as machine code at run time.
//!
//! The crate prints nothing. [`Processor`] says what can run; [`Parameters`] say what is generated.

pub mod cache_edge;
mod element;
mod error;
mod fields;
mod kernel;
mod level2;
pub mod log;
#[cfg_attr(target_arch = "x86_64", path = "x86/mod.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "no_code.rs")]
mod machine;
mod model;
mod operands;
mod pack;
mod parameters;
mod portable;
mod problem;
mod processor;
#[cfg(target_arch = "x86_64")]
mod schedule;
pub mod search;
pub mod statistics;
pub mod trials;
pub mod tuned;
mod unsafe_blocked;
mod unsafe_code_page;
mod unsafe_columns;
mod unsafe_micro;
mod vector;
mod verify;
mod verify_level2;

pub use element::Element;
pub use error::{Error, Value};
pub use fields::fields;
pub use kernel::Gemm;
pub use level2::{Gemv, GemvProblem, Ger, GerProblem, Strided, StridedMut};
pub use parameters::{Level2, Parameters};
pub use problem::{Matrix, MatrixMut, Problem};
pub use processor::Processor;
pub use vector::{Precision, Vector};
pub use verify::{compare, verify_gemm};
pub use verify_level2::{compare_gemv, compare_ger, verify_gemv, verify_ger};
