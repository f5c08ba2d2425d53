//! Identifies a BLAS library, as far as the library tells.

use std::path::PathBuf;

use serde::Serialize;

use crate::blas_sys::{Blas, Precision};

/// What is known about a loaded BLAS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    pub requested: String,
    /// The file of the object that has GEMM.
    pub path: Option<PathBuf>,
    /// The version text of the implementation; the reference BLAS has none.
    pub version: Option<String>,
    /// The kernels that it chose for this CPU.
    pub core: Option<String>,
    /// The threads that it will use.
    pub threads: Option<i64>,
}

impl Identity {
    /// Ask the library everything that any known implementation would answer.
    pub fn of<T: Precision>(blas: &Blas<T>, requested: &str) -> Self {
        Self {
            requested: requested.to_owned(),
            path: blas.path(),
            version: version(blas),
            core: blas
                .text("openblas_get_corename")
                .or_else(|| blas.blis_kernels()),
            threads: threads(blas),
        }
    }
}

fn version<T: Precision>(blas: &Blas<T>) -> Option<String> {
    blas.text("openblas_get_config")
        .or_else(|| blas.written_text("MKL_Get_Version_String"))
        .or_else(|| {
            blas.text("bli_info_get_version_str")
                .map(|version| format!("BLIS {version}"))
        })
}

fn threads<T: Precision>(blas: &Blas<T>) -> Option<i64> {
    [
        "openblas_get_num_threads",
        "MKL_Get_Max_Threads",
        "bli_thread_get_num_threads",
    ]
    .iter()
    .find_map(|name| blas.number(name))
}
