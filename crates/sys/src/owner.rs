//! Names of what an agent leaves if it is killed. A name says which agent made the thing, so that a
//! later agent removes it only when its owner is dead.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::tree::Tree;

pub const PREFIX: &str = "vtax-";

/// `vtax-PID-START-NAMESPACE` of this process: a process number alone may be reused, and another
/// PID namespace has the same numbers.
pub fn name(tree: &Tree) -> String {
    let number = std::process::id();
    let process = tree.stat(number.cast_signed());
    let start = process.and_then(|found| found.start_ticks).unwrap_or(0);
    let namespace = pid_namespace(tree).unwrap_or(0);
    format!("{PREFIX}{number}-{start}-{namespace}")
}

/// Was the owner a process of this PID namespace, and is it dead? `None`: the name has no owner.
pub fn is_dead(tree: &Tree, name: &str) -> Option<bool> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let number: i32 = parts.next()?.parse().ok()?;
    let start: u64 = parts.next()?.parse().ok()?;
    let namespace: u64 = parts.next()?.parse().ok()?;
    let alive = tree.start_ticks(number) == Some(start);
    Some(parts.next().is_none() && pid_namespace(tree)? == namespace && !alive)
}

/// The inode number of this process's PID namespace.
pub fn pid_namespace(tree: &Tree) -> Option<u64> {
    let found = fs::metadata(tree.path("/proc/self/ns/pid")).ok()?;
    Some(found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_or_not_reaped_is_dead() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        fs::create_dir_all(proc.join("self/ns/pid")).unwrap();
        fs::create_dir_all(proc.join("8")).unwrap();
        let tree = Tree::at(root.path());
        let own = pid_namespace(&tree).unwrap();
        let stat = |state| {
            let rest = "1 8 8 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0";
            fs::write(
                proc.join("8/stat"),
                format!("8 (vtax-agent) {state} {rest}"),
            )
            .unwrap();
        };
        stat("S");
        assert_eq!(is_dead(&tree, &format!("vtax-8-500-{own}")), Some(false));
        assert_eq!(is_dead(&tree, &format!("vtax-8-499-{own}")), Some(true));
        stat("Z");
        assert_eq!(is_dead(&tree, &format!("vtax-8-500-{own}")), Some(true));
        assert_eq!(is_dead(&tree, "of-others"), None);
    }
}
