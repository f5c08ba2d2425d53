//! What can be wrong with a description or an input.

use thiserror::Error;

/// A machine, a workload, a policy's parameter or a step of a workload that the model cannot take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    /// A field of a description has an invalid value.
    #[error("{field}: {reason}")]
    Field {
        /// The field, as a path: `tlb.l1[0].ways`.
        field: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The text of a description is not TOML or has the wrong shape.
    #[error("{0}")]
    Syntax(String),
    /// The workload needs more memory than the guest has.
    #[error("workload larger than memory: it needs more than the guest's {memory_bytes} bytes")]
    OutOfMemory { memory_bytes: u64 },
    /// An operation of a workload that its state does not allow (an unknown process, a range that
    /// is not mapped).
    #[error("operation {operation}: {reason}")]
    Operation {
        operation: &'static str,
        /// Why it is not possible.
        reason: String,
    },
    /// The workload asks for more than a file may.
    #[error("the trace asks for {0}; docs/trace-format.md has the limits")]
    Limit(String),
    /// A source of references failed: a damaged trace, a policy written in Python that raised.
    #[error("{0}")]
    Source(String),
}

impl ModelError {
    pub fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field {
            field: field.into(),
            reason: reason.into(),
        }
    }
}
