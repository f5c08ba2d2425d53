//! The CPUs of this machine, and lists of them.

use std::fmt::Write as _;

use vtax_sys::cgroup::locate::locate_of;
use vtax_sys::cpu_list::parse;
use vtax_sys::tree::Tree;

/// Where the kernel lists CPUs.
const FOLDER: &str = "/sys/devices/system/cpu";

/// The online CPUs; empty where the kernel does not say.
pub fn online(tree: &Tree) -> Vec<usize> {
    list(tree, "online")
}

/// The CPUs that are kept free of other work; empty where the kernel does not say.
pub fn isolated(tree: &Tree) -> Vec<usize> {
    list(tree, "isolated")
}

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

/// The control group that limits a thread's CPUs, and those CPUs; `None` where none does.
pub fn cpuset(tree: &Tree, folder: &str) -> Option<(String, Vec<usize>)> {
    let location = locate_of(tree, folder, "cpuset")?;
    location.ancestry().into_iter().find_map(|group| {
        let files = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
        let text = files
            .iter()
            .find_map(|file| tree.text(&format!("{group}/{file}")))?;
        Some((group.to_owned(), parse(&text).ok()?))
    })
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
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_written_as_the_kernel_does() {
        assert_eq!(written(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(written(&[5]), "5");
        assert_eq!(written(&[]), "");
    }

    /// A thread in `/vm/one` of a version 2 hierarchy, whose groups have these files.
    fn tree(root: &Path, files: &[(&str, &str)]) -> Tree {
        let mounts = "1 0 0:1 / /cg rw - cgroup2 none rw\n";
        let own = [
            ("proc/7/cgroup", "0::/vm/one\n"),
            ("proc/self/mountinfo", mounts),
        ];
        for (path, text) in own.iter().chain(files) {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Tree::at(root)
    }

    #[test]
    fn the_nearest_group_says_which_cpus_a_thread_may_have() {
        let root = tempfile::tempdir().unwrap();
        let found = |files: &[(&str, &str)]| cpuset(&tree(root.path(), files), "/proc/7");
        assert_eq!(found(&[]), None);
        let all = ("cg/cpuset.cpus.effective", "0-7\n");
        assert_eq!(found(&[all]), Some(("/cg".to_owned(), (0..8).collect())));
        let own = ("cg/vm/cpuset.cpus.effective", "2,4-5\n");
        assert_eq!(found(&[own]), Some(("/cg/vm".to_owned(), vec![2, 4, 5])));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(cpus in proptest::collection::btree_set(0_usize..8192, 1..50)) {
            let cpus: Vec<usize> = cpus.into_iter().collect();
            prop_assert_eq!(parse(&written(&cpus)), Ok(cpus));
        }
    }
}
