//! The ways to translate a guest's addresses.

use serde::{Deserialize, Serialize};
use vtax_sys::kvm::PagingMode;

/// How a core translates addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Translating {
    /// No virtualization.
    Native,
    Shadow,
    Nested,
    /// Agile paging (Gandhi, Hill, Swift, ISCA 2016): shadow tables for the upper levels and the
    /// quiet subtrees, nested paging for the subtrees that the guest writes to.
    Agile,
}

impl From<PagingMode> for Translating {
    fn from(paging: PagingMode) -> Self {
        match paging {
            PagingMode::Shadow => Self::Shadow,
            PagingMode::Nested => Self::Nested,
        }
    }
}
