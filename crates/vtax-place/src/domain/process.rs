//! The processes of a host, as far as it takes to tell what they do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vtax_sys::task::Task;
use vtax_sys::tree::Tree;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// What the kernel says of its first thread.
    pub task: Task,
    /// Its command line; empty for a kernel thread.
    pub arguments: Vec<String>,
}

impl Process {
    /// The file name of the program that its command line names.
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

/// All processes by their numbers. Command lines are kept from one reading to the next.
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

    /// Every process.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values()
    }

    /// One of them.
    pub fn get(&self, pid: i32) -> Option<&Process> {
        self.all.get(&pid)
    }

    /// What a process descends from, the nearest first.
    pub fn ancestors(&self, pid: i32) -> Vec<&Process> {
        let mut found: Vec<&Process> = Vec::new();
        let mut next = self.get(pid).map(|process| process.task.parent);
        while let Some(process) = next.and_then(|pid| self.get(pid)) {
            // Processes are read one after the other: a number used again could close a circle.
            if found.iter().any(|one| one.pid == process.pid) {
                break;
            }
            found.push(process);
            next = Some(process.task.parent);
        }
        found
    }

    /// These processes and all that descend from them.
    pub fn with_descendants(&self, roots: &[i32]) -> BTreeSet<i32> {
        let below = |pid: &i32| {
            let above = self.ancestors(*pid);
            roots.contains(pid) || above.iter().any(|one| roots.contains(&one.pid))
        };
        self.all.keys().copied().filter(below).collect()
    }
}

/// A process has another command line after exec, which changes its name with few exceptions.
fn same(old: &Task, new: &Task) -> bool {
    old.start_ticks == new.start_ticks && old.name == new.name
}

/// Lossy, as what is not text must not hide a process.
fn command_line(tree: &Tree, pid: i32) -> Vec<String> {
    let bytes = tree
        .bytes(&format!("/proc/{pid}/cmdline"))
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_suffix('\0').unwrap_or(&text);
    text.split('\0').map(str::to_owned).collect()
}
