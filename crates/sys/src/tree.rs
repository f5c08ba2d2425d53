//! Reading `/proc` and `/sys`, below any root, so that tests read a fake tree.
//!
//! Everything here answers `None` for what is missing, unreadable or not of the expected form:
//! kernels differ, and a fact that is absent is reported as absent.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;

/// More bytes than any file of `/proc` or `/sys` that is read here, even with thousands of CPUs.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A file tree that contains `proc` and `sys`.
#[derive(Debug, Clone)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree of this machine.
    pub fn host() -> Self {
        Self::at("/")
    }

    /// A tree whose root is `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where `path` (absolute in the machine) is in this tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's bytes; `None` when it cannot be read.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file's text without surrounding white space; `None` when it cannot be read or is not text.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = String::from_utf8(self.bytes(path)?).ok()?;
        Some(text.trim().to_owned())
    }

    /// The target of a symbolic link.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        target.into_os_string().into_string().ok()
    }

    /// A file's text that is one number.
    pub fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, sorted; empty when it is missing.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

/// The value of `NAME: VALUE` or `NAME<white space>VALUE` in a text of such lines.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.trim_start();
        // The name must end here: "model" is not "model name".
        let value = value
            .strip_prefix(':')
            .or_else(|| (rest.len() != value.len() && !value.contains(':')).then_some(value))?;
        Some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 167\nmodel name\t: Xeon\nMemTotal:   12 kB\nbtime 5\nempty:\n";
        assert_eq!(field(text, "model"), Some("167"));
        assert_eq!(field(text, "model name"), Some("Xeon"));
        assert_eq!(field(text, "MemTotal"), Some("12 kB"));
        assert_eq!(field(text, "btime"), Some("5"));
        assert_eq!(field(text, "empty"), Some(""));
        assert_eq!(field(text, "mod"), None);
    }

    #[test]
    fn what_is_missing_is_none() {
        let tree = Tree::at("/nonexistent");
        assert_eq!(tree.text("/proc/uptime"), None);
        assert_eq!(tree.number::<u64>("/proc/uptime"), None);
        assert!(tree.names("/sys").is_empty());
    }
}
