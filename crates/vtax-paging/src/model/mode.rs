//! The ways to translate a guest's addresses.

use serde::{Deserialize, Serialize};

/// The two modes that a policy chooses between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paging {
    /// The VMM keeps shadow page tables.
    Shadow,
    /// The hardware walks guest and host tables.
    Nested,
}

impl Paging {
    /// The other mode.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Shadow => Self::Nested,
            Self::Nested => Self::Shadow,
        }
    }

    /// The name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Nested => "nested",
        }
    }
}

/// How a core translates addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Translating {
    /// No virtualization.
    Native,
    /// Shadow page tables.
    Shadow,
    /// Nested paging.
    Nested,
    /// Agile paging (Gandhi, Hill, Swift, ISCA 2016): shadow tables for the upper levels and the
    /// quiet subtrees, nested paging for the subtrees that the guest writes to.
    Agile,
}

impl From<Paging> for Translating {
    fn from(paging: Paging) -> Self {
        match paging {
            Paging::Shadow => Self::Shadow,
            Paging::Nested => Self::Nested,
        }
    }
}
