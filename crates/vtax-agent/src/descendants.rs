//! Finding every descendant of a process in `/proc`.

use std::collections::HashMap;

use crate::tree::Tree;

/// The process numbers of all descendants of `ancestor` that exist now, zombies included.
///
/// Process groups and sessions do not matter here: `mpirun` and daemons make their own. Because
/// the agent is a child subreaper, none of its descendants can leave this tree.
pub fn of(tree: &Tree, ancestor: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for name in tree.names("/proc") {
        let Ok(process) = name.parse::<i32>() else {
            continue;
        };
        if let Some(parent) = parent(tree, process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![ancestor];
    while let Some(process) = open.pop() {
        // Removing makes the walk end even if the numbers were reused into a circle.
        if let Some(mut direct) = children.remove(&process) {
            found.append(&mut direct.clone());
            open.append(&mut direct);
        }
    }
    found
}

/// Field 4 of `/proc/PID/stat`; field 2, the name, may hold anything, so count from its end.
fn parent(tree: &Tree, process: i32) -> Option<i32> {
    let text = tree.text(&format!("/proc/{process}/stat"))?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn process(root: &std::path::Path, number: i32, parent: i32, name: &str) {
        let folder = root.join(format!("proc/{number}"));
        fs::create_dir_all(&folder).unwrap();
        let line = format!("{number} ({name}) S {parent} 1 1 0 -1");
        fs::write(folder.join("stat"), line).unwrap();
    }

    #[test]
    fn all_generations_and_nobody_else() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 1, 0, "init");
        process(root.path(), 10, 1, "agent");
        process(root.path(), 11, 10, "sh) S 1 (");
        process(root.path(), 12, 11, "sleep");
        process(root.path(), 13, 1, "other");
        fs::create_dir_all(root.path().join("proc/14")).unwrap();
        let mut found = of(&Tree::at(root.path()), 10);
        found.sort_unstable();
        assert_eq!(found, [11, 12]);
    }
}
