//! KVM's vendor module, and the paging mode that it works in.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tree::Tree;

/// How KVM translates a guest's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PagingMode {
    /// The hypervisor keeps shadow page tables.
    Shadow,
    /// The hardware walks the guest's and the host's tables (AMD: NPT, Intel: EPT).
    Nested,
}

impl PagingMode {
    /// The other one.
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

impl fmt::Display for PagingMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A vendor module, and its parameter that chooses the paging mode (kernel-parameters.txt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// `kvm_amd` or `kvm_intel`.
    pub module: &'static str,
    /// `npt` or `ept`.
    pub parameter: &'static str,
}

const VENDORS: [Vendor; 2] = [
    Vendor {
        module: "kvm_amd",
        parameter: "npt",
    },
    Vendor {
        module: "kvm_intel",
        parameter: "ept",
    },
];

/// The vendor module that is loaded or built in; no machine can have both.
pub fn vendor(tree: &Tree) -> Option<Vendor> {
    VENDORS
        .into_iter()
        .find(|vendor| tree.exists(&format!("/sys/module/{}", vendor.module)))
}

/// The mode that a module works in; `None`: it is not there, or does not say.
pub fn paging_mode(tree: &Tree, module: &str, parameter: &str) -> Option<PagingMode> {
    match tree
        .text(&format!("/sys/module/{module}/parameters/{parameter}"))?
        .as_str()
    {
        "Y" | "1" => Some(PagingMode::Nested),
        "N" | "0" => Some(PagingMode::Shadow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_parameter_says_the_mode() {
        for (module, parameter, text, mode) in [
            ("kvm_amd", "npt", "Y\n", Some(PagingMode::Nested)),
            ("kvm_amd", "npt", "0\n", Some(PagingMode::Shadow)),
            ("kvm_intel", "ept", "N\n", Some(PagingMode::Shadow)),
            ("kvm_intel", "ept", "?\n", None),
            ("kvm_intel", "npt", "Y\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            let parameters = root.path().join("sys/module").join(module);
            let parameters = parameters.join("parameters");
            fs::create_dir_all(&parameters).unwrap();
            fs::write(parameters.join(parameter), text).unwrap();
            let tree = Tree::at(root.path());
            let vendor = vendor(&tree).unwrap();
            assert_eq!(vendor.module, module);
            let found = paging_mode(&tree, module, vendor.parameter);
            assert_eq!(found, mode, "{module} {text}");
        }
    }
}
