//! Identifies the machine that a plan is for.

use vtax_sys::tree::Tree;

use crate::place::cpus;

/// A hash over the name and the CPUs of this machine: 16 hexadecimal digits.
///
/// The name is `/etc/machine-id` (machine-id(5)); where it is missing, the host's name.
pub fn host(tree: &Tree) -> String {
    let name = ["/etc/machine-id", "/proc/sys/kernel/hostname"]
        .into_iter()
        .find_map(|path| tree.text(path).filter(|text| !text.is_empty()));
    let cpus = cpus::written(&cpus::present(tree));
    let text = format!("vtax-place\n{}\n{cpus}\n", name.unwrap_or_default());
    format!("{:016x}", fnv1a(text.as_bytes()))
}

/// FNV-1a (RFC 9923): the hash only has to distinguish machines; it is no protection.
fn fnv1a(bytes: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_hash_is_the_standard_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn another_machine_or_other_cpus_are_another_host() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let tree = Tree::at(root.path());
        put("etc/machine-id", "a\n");
        put("sys/devices/system/cpu/present", "0-3\n");
        let first = host(&tree);
        assert_eq!(first, host(&tree));
        put("sys/devices/system/cpu/present", "0-7\n");
        let second = host(&tree);
        put("etc/machine-id", "b\n");
        let third = host(&tree);
        assert!(first != second && second != third && first != third);
        assert_eq!(first.len(), 16);
    }
}
