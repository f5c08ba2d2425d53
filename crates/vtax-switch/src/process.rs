//! Processes as /proc shows them, below any root, so that tests read a fake tree.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// More than any file of /proc that is read here.
const MAX_BYTES: u64 = 8 << 20;

/// A file tree with `proc` and `sys` in it.
#[derive(Debug, Clone)]
pub struct Tree {
    root: PathBuf,
}

/// One open descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// What /proc says it is, such as `/dev/kvm` or `anon_inode:kvm-vm`.
    pub target: String,
    /// It stays open through exec.
    pub inherited: bool,
}

impl Tree {
    /// The machine's own.
    pub fn host() -> Self {
        Self::at("/")
    }

    /// A tree whose root is `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where `path` (absolute as the machine sees it) is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's bytes; `None` when it cannot be read.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.path(path)).ok()?;
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file's text without surrounding white space.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = String::from_utf8(self.bytes(path)?).ok()?;
        Some(text.trim().to_owned())
    }

    /// What a symbolic link names.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        target.into_os_string().into_string().ok()
    }

    /// The names in a folder, sorted; none when it is missing.
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

    /// Does the path exist?
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Every process.
    pub fn processes(&self) -> Vec<i32> {
        numbers(self.names("/proc"))
    }

    /// A process's open descriptors; none when it has gone.
    pub fn descriptors(&self, pid: i32) -> Vec<Descriptor> {
        let numbers = numbers(self.names(&format!("/proc/{pid}/fd")));
        let found = numbers.into_iter().filter_map(|number| {
            let target = self.link(&format!("/proc/{pid}/fd/{number}"))?;
            let info = self.text(&format!("/proc/{pid}/fdinfo/{number}"));
            Some(Descriptor {
                number,
                target,
                inherited: info.as_deref().and_then(is_inherited).unwrap_or(false),
            })
        });
        found.collect()
    }

    /// Strings that end with a zero byte each: a command line or an environment.
    pub fn strings(&self, path: &str) -> Option<Vec<String>> {
        let bytes = self.bytes(path)?;
        let text = String::from_utf8(bytes).ok()?;
        let text = text.strip_suffix('\0').unwrap_or(&text);
        if text.is_empty() {
            return Some(Vec::new());
        }
        Some(text.split('\0').map(str::to_owned).collect())
    }

    /// When a process started, in clock ticks since boot: with its number it names it for good.
    pub fn start_ticks(&self, pid: i32) -> Option<u64> {
        let stat = self.text(&format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may contain anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        if fields.next()? == "Z" {
            return None;
        }
        // Field 22 of proc(5); the state was field 3.
        fields.nth(18)?.parse().ok()
    }

    /// Time that a process's threads spent in guests, in clock ticks.
    pub fn guest_ticks(&self, pid: i32) -> Option<u64> {
        let stat = self.text(&format!("/proc/{pid}/stat"))?;
        let (_, rest) = stat.rsplit_once(')')?;
        // Field 43 of proc(5); the first of the rest is field 3.
        rest.split_ascii_whitespace().nth(40)?.parse().ok()
    }

    /// The numbers of a line `name: a b` in /proc/PID/status.
    pub fn status(&self, pid: i32, name: &str) -> Option<Vec<u32>> {
        let status = self.text(&format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| {
            line.strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(':'))
        })?;
        line.split_ascii_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    }
}

fn numbers(names: Vec<String>) -> Vec<i32> {
    let mut numbers: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// From /proc/PID/fdinfo: not marked close-on-exec.
fn is_inherited(info: &str) -> Option<bool> {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
    Some(flags & libc::O_CLOEXEC.cast_unsigned() == 0)
}

/// Does this descriptor use KVM?
pub fn is_kvm(target: &str) -> bool {
    target == "/dev/kvm" || target.starts_with("anon_inode:kvm-")
}

/// Is a path of the machine itself, not one that was deleted or has no name?
pub fn is_plain(path: &str) -> bool {
    Path::new(path).is_absolute() && !path.ends_with(" (deleted)")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn processes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("proc/42");
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::create_dir_all(process.join("fdinfo")).unwrap();
        fs::write(process.join("cmdline"), b"qemu\0-S\0\0").unwrap();
        let after_name: Vec<String> = (4..=43).map(|field: u32| field.to_string()).collect();
        let after_name = after_name.join(" ");
        fs::write(
            process.join("stat"),
            format!("42 (a) b) S {after_name} 0\n"),
        )
        .unwrap();
        symlink("/dev/kvm", process.join("fd/9")).unwrap();
        fs::write(process.join("fdinfo/9"), "pos:\t0\nflags:\t02100002\n").unwrap();
        symlink("pipe:[1]", process.join("fd/10")).unwrap();
        fs::write(process.join("fdinfo/10"), "flags:\t01\n").unwrap();
        let tree = Tree::at(folder.path());
        assert_eq!(tree.processes(), [42]);
        assert_eq!(
            tree.strings("/proc/42/cmdline").unwrap(),
            ["qemu", "-S", ""]
        );
        assert_eq!(tree.start_ticks(42), Some(22));
        assert_eq!(tree.guest_ticks(42), Some(43));
        let open = tree.descriptors(42);
        assert!(is_kvm(&open[0].target) && !open[0].inherited);
        assert!(!is_kvm(&open[1].target) && open[1].inherited);
        assert_eq!(tree.start_ticks(43), None);
    }
}
