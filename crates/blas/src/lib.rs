//! `libvtaxblas.so`: GEMM, GEMV and GER of vtax-tuner under the names that BLAS and CBLAS give them.
//!
//! The library is preloaded (`LD_PRELOAD`): routines that it does not have come from the process's
//! own BLAS. The kernels are generated when a routine is first called, from the file of parameters
//! that `VTAX_BLAS` names (`vtax tune --export`), otherwise from the model of the processor. The
//! interface is that of the reference BLAS (netlib.org/blas) with 32-bit integers, as in
//! `libblas.so.3`.
//!
//! Nothing in the library may panic: a panic would end another's program. Where kernels are not
//! possible (no memory, no executable pages), products are computed without them.

mod arguments;
mod kernels;
mod layout;
mod plain;
mod settings;
mod unsafe_small;
pub mod unsafe_symbols;
