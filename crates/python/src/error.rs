//! The model's errors as Python exceptions; the package turns them into its own exceptions.

use pyo3::exceptions::PyException;
use pyo3::{PyErr, create_exception};
use vtax_model::error::ModelError;

create_exception!(
    vtax._native,
    DescriptionError,
    PyException,
    "An invalid machine, workload, setting or parameter; the message names the field."
);
create_exception!(
    vtax._native,
    InputError,
    PyException,
    "A trace that cannot be read further, or a workload that does what its state does not allow."
);

/// The exception for an error of the model.
pub(crate) fn raise(error: ModelError) -> PyErr {
    let message = error.to_string();
    match error {
        ModelError::Field { .. } | ModelError::Syntax(_) => DescriptionError::new_err(message),
        ModelError::OutOfMemory { .. } => DescriptionError::new_err(format!(
            "{message}; give the guest more, or the workload a smaller footprint"
        )),
        ModelError::Operation { .. } | ModelError::Limit(_) | ModelError::Source(_) => {
            InputError::new_err(message)
        }
    }
}
