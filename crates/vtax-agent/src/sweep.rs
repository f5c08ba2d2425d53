//! Removing the control groups of agents that were killed before they could do it themselves.

use std::fs;
use std::path::PathBuf;

use vtax_sys::cgroup::NAME_PREFIX;
use vtax_sys::cgroup::locate::locate;
use vtax_sys::tree::Tree;

/// Remove every empty `vtax-PID` group, beside or below the caller's own, whose process is gone.
///
/// Returns how many were removed. A group that still has processes is left alone: the kernel
/// refuses to remove it.
pub fn sweep(tree: &Tree) -> usize {
    let Some(location) = locate(tree, "memory") else {
        return 0;
    };
    let folders = location.ancestry();
    folders
        .iter()
        .flat_map(|folder| leftovers(tree, folder))
        .filter(|folder| fs::remove_dir(folder).is_ok())
        .count()
}

fn leftovers(tree: &Tree, folder: &str) -> Vec<PathBuf> {
    tree.names(folder)
        .iter()
        .filter(|name| is_of_the_dead(tree, name))
        .map(|name| tree.path(&format!("{folder}/{name}")))
        .collect()
}

fn is_of_the_dead(tree: &Tree, name: &str) -> bool {
    let process = name
        .strip_prefix(NAME_PREFIX)
        .and_then(|number| number.parse::<u32>().ok());
    process.is_some_and(|process| !tree.exists(&format!("/proc/{process}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_groups_of_dead_agents_go() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup/a");
        for folder in ["proc/self", "proc/7", "sys/fs/cgroup/vtax-10"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for name in ["vtax-7", "vtax-8", "vtax-9/busy", "vtax-callers", "other-8"] {
            fs::create_dir_all(group.join(name)).unwrap();
        }
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), mount).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/a\n").unwrap();
        assert_eq!(sweep(&Tree::at(root.path())), 2);
        assert_eq!(
            Tree::at(&group).names("/"),
            ["other-8", "vtax-7", "vtax-9", "vtax-callers"]
        );
    }
}
