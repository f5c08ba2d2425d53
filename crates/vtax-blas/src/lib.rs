//! `libvtaxblas.so`: GEMM, GEMV and GER of vtax-tune under the names that BLAS and CBLAS give them.
//!
//! It is preloaded (`LD_PRELOAD`): what it does not have comes from the process's own BLAS. The
//! kernels are generated when a routine is first called, from the file of parameters that
//! `VTAX_BLAS` names (`vtax tune --export`), else from the model of the processor. The interface is
//! that of the reference BLAS (netlib.org/blas) with 32-bit integers, as `libblas.so.3` has it.
//!
//! Nothing here may panic: a panic would end a program that is not ours. What cannot be done with
//! kernels (no memory, no executable pages) is done without them.

mod arguments;
mod kernels;
mod layout;
mod plain;
mod settings;
pub mod unsafe_symbols;
