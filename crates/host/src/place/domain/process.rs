//! The processes of a host, with what is needed to tell their kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vtax_sys::task::Task;
use vtax_sys::tree::Tree;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// What the kernel says about its first thread.
    pub task: Task,
    /// Its command line; empty for a kernel thread.
    pub arguments: Vec<String>,
}

impl Process {
    /// The file name of the program, from its command line.
    pub fn program(&self) -> &str {
        let path = self.arguments.first().map_or("", String::as_str);
        let name = Path::new(path).file_name();
        name.and_then(|name| name.to_str()).unwrap_or("")
    }

    /// The value of `--name value`, `--name=value` or `-name value`.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == name {
                return arguments.next().map(String::as_str);
            }
            let value = argument.strip_prefix(name);
            if let Some(value) = value.and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    }
}

/// All processes by number. Command lines are kept from one reading to the next.
#[derive(Debug, Default)]
pub struct Processes {
    all: BTreeMap<i32, Process>,
}

impl Processes {
    /// Read a machine's processes; those that end meanwhile are absent.
    pub fn read(&mut self, tree: &Tree) {
        let before = std::mem::take(&mut self.all);
        let now = tree.processes().into_iter().filter_map(|pid| {
            let task = tree.task(&format!("/proc/{pid}"))?;
            if task.zombie {
                return None;
            }
            let known = before.get(&pid).filter(|old| same(&old.task, &task));
            let arguments = match known {
                Some(old) => old.arguments.clone(),
                None if task.kernel => Vec::new(),
                None => command_line(tree, pid),
            };
            let process = Process {
                pid,
                task,
                arguments,
            };
            Some((pid, process))
        });
        self.all = now.collect();
    }

    /// All processes.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values()
    }

    pub fn get(&self, pid: i32) -> Option<&Process> {
        self.all.get(&pid)
    }

    /// The ancestors of a process, the nearest first.
    pub fn ancestors(&self, pid: i32) -> Vec<&Process> {
        let mut found: Vec<&Process> = Vec::new();
        let mut next = self.get(pid).map(|process| process.task.parent);
        while let Some(process) = next.and_then(|pid| self.get(pid)) {
            // Processes are read one after the other: a reused number could close a circle.
            if found.iter().any(|one| one.pid == process.pid) {
                break;
            }
            found.push(process);
            next = Some(process.task.parent);
        }
        found
    }

    /// These processes and all their descendants.
    pub fn with_descendants(&self, roots: &[i32]) -> BTreeSet<i32> {
        let below = |pid: &i32| {
            let above = self.ancestors(*pid);
            roots.contains(pid) || above.iter().any(|one| roots.contains(&one.pid))
        };
        self.all.keys().copied().filter(below).collect()
    }
}

/// Is it the same program? Only exec changes the command line, and with few exceptions it changes
/// the name too.
fn same(old: &Task, new: &Task) -> bool {
    old.start_ticks == new.start_ticks && old.name == new.name
}

/// Lossy, because text that is not UTF-8 must not hide a process.
fn command_line(tree: &Tree, pid: i32) -> Vec<String> {
    let bytes = tree
        .bytes(&format!("/proc/{pid}/cmdline"))
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_suffix('\0').unwrap_or(&text);
    text.split('\0').map(str::to_owned).collect()
}
