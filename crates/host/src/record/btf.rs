//! Which tracepoints the running kernel describes in its type information (BTF).

use std::collections::HashSet;

use vtax_sys::tree::Tree;

/// Where the kernel shows its own types and those of its modules.
const FOLDER: &str = "/sys/kernel/btf";

/// The tracepoints of the running kernel and of its loaded modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracepoints(HashSet<String>);

impl Tracepoints {
    /// Find the tracepoints in a machine's tree; the error says why nothing can be attached.
    pub fn find(tree: &Tree) -> Result<Self, String> {
        let folder = tree.path(FOLDER);
        let kernel = std::fs::read(folder.join("vmlinux")).map_err(|error| {
            format!("the kernel has no type information ({FOLDER}/vmlinux: {error})")
        })?;
        let mut names = HashSet::new();
        collect(&kernel, &mut names).ok_or_else(|| format!("{FOLDER}/vmlinux is not valid BTF"))?;
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if let Ok(module) = std::fs::read(entry.path()) {
                // A module that cannot be read has no tracepoint that could be attached.
                let _ = collect(&module, &mut names);
            }
        }
        Ok(Self(names))
    }

    /// Is there a tracepoint of this name?
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Each traceable event has a type `btf_trace_NAME`; all names are in one table of strings.
fn collect(bytes: &[u8], names: &mut HashSet<String>) -> Option<()> {
    let strings = string_table(bytes)?;
    for name in strings.split(|byte| *byte == 0) {
        if let Some(event) = name.strip_prefix(b"btf_trace_") {
            names.insert(String::from_utf8_lossy(event).into_owned());
        }
    }
    Some(())
}

/// `struct btf_header` (include/uapi/linux/btf.h): the length of the header at 4, the offset and
/// the length of the strings at 16 and 20.
fn string_table(bytes: &[u8]) -> Option<&[u8]> {
    const MAGIC: [u8; 2] = 0xeb9f_u16.to_le_bytes();
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let number = |at: usize| -> Option<usize> {
        let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(word)).ok()
    };
    let start = number(4)?.checked_add(number(16)?)?;
    bytes.get(start..start.checked_add(number(20)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn btf(strings: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let length = u32::try_from(strings.len()).unwrap();
        for word in [24, 0, 0, 0, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn names_of_kernel_and_modules_are_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = Tree::at(root.path()).path(FOLDER);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("vmlinux"),
            btf(b"\0int\0btf_trace_sched_switch\0"),
        )
        .unwrap();
        std::fs::write(folder.join("kvm"), btf(b"\0btf_trace_kvm_exit\0")).unwrap();
        let found = Tracepoints::find(&Tree::at(root.path())).unwrap();
        assert!(found.has("sched_switch") && found.has("kvm_exit"));
        assert!(!found.has("int") && !found.has("kvm"));
    }

    #[test]
    fn a_kernel_without_types_is_named() {
        let root = tempfile::tempdir().unwrap();
        let error = Tracepoints::find(&Tree::at(root.path())).unwrap_err();
        assert!(error.contains("no type information"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = collect(&bytes, &mut HashSet::new());
            let mut headed = vec![0x9f, 0xeb];
            headed.extend(bytes);
            let _ = collect(&headed, &mut HashSet::new());
        }
    }
}
