//! The CPUs of this machine, and lists of them.

use std::fmt::Write as _;

use vtax_sys::cpu_list::parse;
use vtax_sys::tree::Tree;

/// Where the kernel lists CPUs.
const FOLDER: &str = "/sys/devices/system/cpu";

/// The CPUs that are on; none where the kernel does not say.
pub fn online(tree: &Tree) -> Vec<usize> {
    list(tree, "online")
}

/// The CPUs that are plugged in.
pub fn present(tree: &Tree) -> Vec<usize> {
    list(tree, "present")
}

fn list(tree: &Tree, name: &str) -> Vec<usize> {
    let text = tree.text(&format!("{FOLDER}/{name}"));
    text.and_then(|text| parse(&text).ok()).unwrap_or_default()
}

/// The folder of a CPU in `/sys`.
pub fn folder(cpu: usize) -> String {
    format!("{FOLDER}/cpu{cpu}")
}

/// Sorted CPUs as the kernel writes them: `0-3,8`.
pub fn written(cpus: &[usize]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some(&first) = rest.first() {
        let length = (first..).zip(rest).take_while(|(a, b)| a == *b).count();
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match length {
            1 => write!(text, "{comma}{first}"),
            _ => write!(text, "{comma}{first}-{}", first + length - 1),
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_written_as_the_kernel_does() {
        assert_eq!(written(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(written(&[5]), "5");
        assert_eq!(written(&[]), "");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(cpus in proptest::collection::btree_set(0_usize..8192, 1..50)) {
            let cpus: Vec<usize> = cpus.into_iter().collect();
            prop_assert_eq!(parse(&written(&cpus)), Ok(cpus));
        }
    }
}
