//! The Python module `vtax._native`: the paging model of [`vtax_model`] for the package `vtax`.
//!
//! The module is private to `vtax.paging`, which gives it names, units and documentation for users;
//! the types are declared in `python/vtax/_native.pyi`. Descriptions come in as TOML texts, results
//! go out as columns.

mod choice;
mod description;
mod error;
mod machine;
mod outcome;
mod policy;
mod request;
mod run;
mod trace;
mod workload;

/// The module. Its name is the library's name.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::choice::{dav2m_transitions, mode_names, policy_names};
    #[pymodule_export]
    use crate::description::{
        check_parameter, locality, machine_description, workload_description,
    };
    #[pymodule_export]
    use crate::error::{DescriptionError, InputError};
    #[pymodule_export]
    use crate::machine::Machine;
    #[pymodule_export]
    use crate::outcome::Outcome;
    #[pymodule_export]
    use crate::run::simulate;
    #[pymodule_export]
    use crate::trace::Trace;
    #[pymodule_export]
    use crate::workload::Workload;

    /// The version of the package that the module was built for.
    #[pyo3::pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}
