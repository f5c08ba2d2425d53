//! Which KVM module is there, and how it translates guests' addresses.

use serde::Serialize;

use vtax_sys::tree::Tree;

/// The module and its parameter for nested paging (kernel-parameters.txt).
const MODULES: [(&str, &str); 2] = [("kvm_amd", "npt"), ("kvm_intel", "ept")];

/// How guests' addresses are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The processor, through a second page table.
    Nested,
    /// KVM, by page tables that it keeps for the guest.
    Shadow,
}

impl Mode {
    /// The name in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nested => "nested",
            Self::Shadow => "shadow",
        }
    }
}

/// A loaded KVM module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub name: &'static str,
    /// `None` when the module does not say.
    pub mode: Option<Mode>,
}

/// The first module that is there; no machine can have both.
pub(super) fn find(tree: &Tree) -> Option<Found> {
    let there = |(name, _): &&(&str, &str)| tree.exists(&format!("/sys/module/{name}"));
    let (name, parameter) = MODULES.iter().find(there)?;
    let text = tree.text(&format!("/sys/module/{name}/parameters/{parameter}"));
    let mode = match text.as_deref() {
        Some("Y" | "1") => Some(Mode::Nested),
        Some("N" | "0") => Some(Mode::Shadow),
        _ => None,
    };
    Some(Found { name, mode })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_parameter_says_the_mode() {
        for (module, parameter, text, mode) in [
            ("kvm_amd", "npt", "Y\n", Some(Mode::Nested)),
            ("kvm_amd", "npt", "0\n", Some(Mode::Shadow)),
            ("kvm_intel", "ept", "N\n", Some(Mode::Shadow)),
            ("kvm_intel", "ept", "?\n", None),
            ("kvm_intel", "npt", "Y\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            let folder = root
                .path()
                .join("sys/module")
                .join(module)
                .join("parameters");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(parameter), text).unwrap();
            let found = find(&Tree::at(root.path()));
            assert_eq!(found, Some(Found { name: module, mode }), "{module} {text}");
        }
    }
}
