//! Ending and removing the control groups of agents that were killed before they could do so.

use std::path::PathBuf;

use crate::cgroup::ending;
use crate::cgroup::locate::locate;
use crate::cgroup::quota;
use crate::owner;
use crate::tree::Tree;

/// End every group of a dead agent that is a sibling, descendant or ancestor of the caller's own
/// group.
///
/// [`quota::sweep`] gives back the threads that a dead program has slowed. Returns how many folders
/// were removed. Only groups that an agent of this PID namespace made are considered, and only when
/// no process has its number and start time any more.
pub fn sweep(tree: &Tree) -> usize {
    let mut found: Vec<PathBuf> = ["pids", "memory"]
        .iter()
        .filter_map(|controller| locate(tree, controller))
        .flat_map(|location| {
            let folders = location.ancestry().into_iter();
            folders
                .flat_map(|folder| leftovers(tree, folder))
                .collect::<Vec<_>>()
        })
        .collect();
    found.sort();
    found.dedup();
    let ended = found.iter().filter(|folder| ending::end(folder)).count();
    ended + quota::sweep(tree)
}

fn leftovers(tree: &Tree, folder: &str) -> Vec<PathBuf> {
    tree.names(folder)
        .iter()
        .filter(|name| owner::is_dead(tree, name).unwrap_or(false))
        .map(|name| tree.path(&format!("{folder}/{name}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_groups_of_dead_agents_go() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup/a");
        for folder in ["proc/self/ns/pid", "proc/7", "sys/fs/cgroup"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let tree = Tree::at(root.path());
        let stat = "7 (vtax-agent) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0";
        fs::write(root.path().join("proc/7/stat"), stat).unwrap();
        let own = owner::pid_namespace(&tree).unwrap();
        let other = own + 1;
        let dead = [
            format!("vtax-7-499-{own}"),
            format!("vtax-8-500-{own}/below"),
            format!("../vtax-10-500-{own}"),
        ];
        let kept = [
            "other-8".to_owned(),
            format!("vtax-7-500-{own}"),
            "vtax-8".to_owned(),
            format!("vtax-8-500-{other}"),
            format!("vtax-8-500-{own}-1"),
            "vtax-callers".to_owned(),
        ];
        for name in dead.iter().chain(&kept) {
            fs::create_dir_all(group.join(name)).unwrap();
        }
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), mount).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/a\n").unwrap();
        assert_eq!(sweep(&tree), dead.len());
        let mut kept = kept.to_vec();
        kept.sort();
        assert_eq!(Tree::at(&group).names("/"), kept);
    }
}
