//! Processes as `/proc` shows them (proc(5)).

use std::collections::BTreeMap;
use std::path::Path;

use crate::tree::Tree;

/// The link of a virtual machine's descriptor.
const MACHINE: &str = "anon_inode:kvm-vm";
/// How the links of all descriptors made by KVM begin.
const MADE_BY_KVM: &str = "anon_inode:kvm-";

/// A process according to `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The process has ended and nobody has reaped it.
    pub zombie: bool,
    /// The process waits for something, and a signal would wake it.
    pub sleeping: bool,
    /// The process number of its parent.
    pub parent: i32,
    /// Start time, in clock ticks since boot (field 22).
    pub start_ticks: Option<u64>,
    /// Time that its threads spent in guests, in clock ticks (field 43).
    pub guest_ticks: Option<u64>,
}

/// One open descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    pub number: i32,
    /// What `/proc` says the descriptor is, such as `/dev/kvm` or `anon_inode:kvm-vm`.
    pub target: String,
    /// The descriptor stays open through exec.
    pub inherited: bool,
}

impl Tree {
    pub fn processes(&self) -> Vec<i32> {
        numbers(self.names("/proc"))
    }

    /// Is there such a process?
    pub fn has_process(&self, pid: i32) -> bool {
        self.exists(&format!("/proc/{pid}/stat"))
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

    /// Strings that each end with a zero byte: a command line or an environment.
    pub fn strings(&self, path: &str) -> Option<Vec<String>> {
        let bytes = self.bytes(path)?;
        let text = String::from_utf8(bytes).ok()?;
        let text = text.strip_suffix('\0').unwrap_or(&text);
        if text.is_empty() {
            return Some(Vec::new());
        }
        Some(text.split('\0').map(str::to_owned).collect())
    }

    /// Read a process's `/proc/PID/stat`; `None` when there is no such process.
    pub fn stat(&self, pid: i32) -> Option<Stat> {
        let bytes = self.bytes(&format!("/proc/{pid}/stat"))?;
        let text = String::from_utf8_lossy(&bytes);
        // Field 2, the name in parentheses, may hold anything; field 3 follows the last
        // parenthesis.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Stat {
            zombie: field(3)? == "Z",
            sleeping: field(3)? == "S",
            parent: field(4)?.parse().ok()?,
            start_ticks: field(22).and_then(|text| text.parse().ok()),
            guest_ticks: field(43).and_then(|text| text.parse().ok()),
        })
    }

    /// When a process that is not a zombie started, in clock ticks since boot. Together with its
    /// number this identifies the process for good.
    pub fn start_ticks(&self, pid: i32) -> Option<u64> {
        let stat = self.stat(pid).filter(|stat| !stat.zombie)?;
        stat.start_ticks
    }

    /// Time that a process's threads spent in guests, in clock ticks.
    pub fn guest_ticks(&self, pid: i32) -> Option<u64> {
        self.stat(pid)?.guest_ticks
    }

    /// The links of the descriptors that KVM made for a process, without `anon_inode:`, by their
    /// numbers; `None` when the process has no virtual machine, or its descriptors may not be read.
    pub fn kvm_descriptors(&self, pid: i32) -> Option<BTreeMap<i32, String>> {
        let mut found = BTreeMap::new();
        let mut machine = false;
        for number in numbers(self.names(&format!("/proc/{pid}/fd"))) {
            let Some(link) = self.link(&format!("/proc/{pid}/fd/{number}")) else {
                continue;
            };
            machine |= link == MACHINE;
            if link.starts_with(MADE_BY_KVM) {
                found.insert(number, link.trim_start_matches("anon_inode:").to_owned());
            }
        }
        machine.then_some(found)
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

/// Is the descriptor not marked close-on-exec, by the text of `/proc/PID/fdinfo`?
fn is_inherited(info: &str) -> Option<bool> {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
    Some(flags & libc::O_CLOEXEC.cast_unsigned() == 0)
}

/// Does this descriptor use KVM?
pub fn is_kvm(target: &str) -> bool {
    target == "/dev/kvm" || target.starts_with(MADE_BY_KVM)
}

/// Is this a path of the machine itself, neither deleted nor nameless?
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
        // A name need not be UTF-8.
        let name = b"42 (a) b\xff) S ";
        let after_name: Vec<String> = (4..=43).map(|field: u32| field.to_string()).collect();
        let after_name = after_name.join(" ");
        fs::write(
            process.join("stat"),
            [name, after_name.as_bytes(), b" 0\n"].concat(),
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

    #[test]
    fn only_processes_with_a_virtual_machine() {
        let root = tempfile::tempdir().unwrap();
        for (path, target) in [
            ("88/fd/0", "/dev/null"),
            ("88/fd/11", "anon_inode:kvm-vm"),
            ("88/fd/13", "anon_inode:kvm-vcpu:0"),
            ("88/fd/14", "anon_inode:kvm-vcpu-stats:0"),
            ("90/fd/3", "anon_inode:kvm-vcpu-stats:0"),
        ] {
            let path = root.path().join("proc").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }
        let tree = Tree::at(root.path());
        assert_eq!(tree.kvm_descriptors(90), None);
        let found = tree.kvm_descriptors(88).unwrap();
        let kinds = [(11, "kvm-vm"), (13, "kvm-vcpu:0"), (14, "kvm-vcpu-stats:0")];
        let kinds = kinds.map(|(number, kind)| (number, kind.to_owned()));
        assert_eq!(found, BTreeMap::from(kinds));
    }
}
