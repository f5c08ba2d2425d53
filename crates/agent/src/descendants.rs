//! Finding every descendant of a process in `/proc`.

use std::collections::{BTreeSet, HashMap};

use vtax_sys::tree::Tree;

/// A process; its start time distinguishes it from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub number: i32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// All descendants of `ancestor` that exist now, zombies included, except those in `spared` and
/// what descends from them.
///
/// Process groups and sessions do not matter here: `mpirun` and daemons make their own. Because
/// the agent is a child subreaper, none of its descendants can leave this tree.
pub fn of(tree: &Tree, ancestor: i32, spared: &BTreeSet<Process>) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for name in tree.names("/proc") {
        let Ok(number) = name.parse::<i32>() else {
            continue;
        };
        if let Some((parent, process)) = process(tree, number)
            && !spared.contains(&process)
        {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![ancestor];
    while let Some(number) = open.pop() {
        // Removing makes the walk end even if reused numbers form a circle.
        if let Some(direct) = children.remove(&number) {
            open.extend(direct.iter().map(|process| process.number));
            found.extend(direct);
        }
    }
    found
}

/// The parent and the process; `None` when there is none.
pub fn process(tree: &Tree, number: i32) -> Option<(i32, Process)> {
    let found = tree.stat(number)?;
    let start = found.start_ticks?;
    Some((found.parent, Process { number, start }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn add(root: &std::path::Path, number: i32, parent: i32, name: &str) {
        let folder = root.join(format!("proc/{number}"));
        fs::create_dir_all(&folder).unwrap();
        let start = 1000 + number;
        let line =
            format!("{number} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0");
        fs::write(folder.join("stat"), line).unwrap();
    }

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        add(root.path(), 1, 0, "init");
        add(root.path(), 10, 1, "agent");
        add(root.path(), 11, 10, "sh) S 1 (");
        add(root.path(), 12, 11, "sleep");
        add(root.path(), 13, 1, "other");
        add(root.path(), 15, 10, "qemu");
        add(root.path(), 16, 15, "helper");
        fs::create_dir_all(root.path().join("proc/14")).unwrap();
        root
    }

    fn numbers(root: &tempfile::TempDir, spared: &[Process]) -> Vec<i32> {
        let spared = spared.iter().copied().collect();
        let found = of(&Tree::at(root.path()), 10, &spared);
        let mut numbers: Vec<i32> = found.iter().map(|process| process.number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn all_generations_and_nobody_else() {
        assert_eq!(numbers(&root(), &[]), [11, 12, 15, 16]);
    }

    #[test]
    fn the_spared_and_theirs_are_left_out_but_not_a_later_process_of_that_number() {
        let qemu = Process {
            number: 15,
            start: 1015,
        };
        assert_eq!(numbers(&root(), &[qemu]), [11, 12]);
        let earlier = Process { start: 1, ..qemu };
        assert_eq!(numbers(&root(), &[earlier]), [11, 12, 15, 16]);
    }
}
