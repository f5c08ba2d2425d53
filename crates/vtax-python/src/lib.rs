//! `vtax._native`
use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _native {
    use super::*;
    /// x
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
    /// x
    #[pyfunction]
    fn crash() {
        panic!("no")
    }
}
