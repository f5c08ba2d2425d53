//! Names of what an agent leaves if it is killed: they say whose it is, so that a later one removes
//! it only when its owner is dead.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::tree::Tree;

/// What these names begin with.
pub const PREFIX: &str = "vtax-";

/// `vtax-PID-START-NAMESPACE` of this process: a process number alone is used again, and another
/// PID namespace has the same numbers.
pub fn name(tree: &Tree) -> String {
    let number = std::process::id();
    let process = tree.stat(number.cast_signed());
    let start = process.and_then(|found| found.start_ticks).unwrap_or(0);
    let namespace = pid_namespace(tree).unwrap_or(0);
    format!("{PREFIX}{number}-{start}-{namespace}")
}

/// Did a process of this PID namespace make it that is dead now? `None`: nobody made it.
pub fn is_dead(tree: &Tree, name: &str) -> Option<bool> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let number: i32 = parts.next()?.parse().ok()?;
    let start: u64 = parts.next()?.parse().ok()?;
    let namespace: u64 = parts.next()?.parse().ok()?;
    let found = tree.stat(number).and_then(|process| process.start_ticks);
    let alive = found == Some(start);
    Some(parts.next().is_none() && pid_namespace(tree)? == namespace && !alive)
}

/// The inode number of this process's PID namespace.
pub fn pid_namespace(tree: &Tree) -> Option<u64> {
    let found = fs::metadata(tree.path("/proc/self/ns/pid")).ok()?;
    Some(found.ino())
}
