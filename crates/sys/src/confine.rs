//! What confines commands: limits of memory and processes, and how they are ended.
//!
//! The agent and the recorder use it.

use std::cell::Cell;
use std::os::fd::RawFd;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::getuid;

use crate::cgroup::CommandGroup;
use crate::cgroup::sweep::sweep;
use crate::tree::{Tree, field};

/// Limits for all commands together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Bytes of memory, including swap, except for `swap_bytes`.
    pub memory_bytes: Option<u64>,
    /// Bytes that may be swapped out beyond that.
    pub swap_bytes: u64,
    /// Processes and threads.
    pub processes: Option<u64>,
}

/// What confines commands; by default nothing. Dropping it ends every process in its control group.
#[derive(Debug, Default)]
pub struct Confinement {
    group: Option<CommandGroup>,
    /// [`Self::kill`] has closed the group.
    closed: Cell<bool>,
    /// `RLIMIT_NPROC`, where no control group limits processes.
    user_processes: Option<u64>,
}

/// Why a control group does not enforce a limit, one line each.
#[derive(Debug, Default)]
pub struct Refused {
    /// Memory is not limited.
    pub memory: Option<String>,
    /// Processes are not limited, or only by the user's total.
    pub processes: Option<String>,
}

impl Confinement {
    /// Set the wanted limits after the leftovers of killed agents are removed.
    pub fn new(tree: &Tree, limits: Limits) -> (Self, Refused) {
        let mut this = Self::default();
        let mut refused = Refused::default();
        if limits.memory_bytes.is_none() && limits.processes.is_none() {
            return (this, refused);
        }
        sweep(tree);
        let mut group = CommandGroup::default();
        if let Some(bytes) = limits.memory_bytes {
            refused.memory = group.limit_memory(tree, bytes, limits.swap_bytes).err();
        }
        if let Some(count) = limits.processes
            && let Err(reason) = group.limit_processes(tree, count)
        {
            this.user_processes = user_processes(tree, count);
            let instead = this.user_processes.map_or_else(
                || "nothing limits the processes of root instead".into(),
                |most| format!("instead the user may have {most} in all"),
            );
            refused.processes = Some(format!("{reason}; {instead}"));
        }
        this.group = Some(group);
        (this, refused)
    }

    /// Each file that a child writes `0` to in order to join.
    pub fn procs(&self) -> Vec<RawFd> {
        self.group
            .as_ref()
            .map(CommandGroup::procs)
            .unwrap_or_default()
    }

    /// The `RLIMIT_NPROC` of a child.
    pub fn user_processes(&self) -> Option<u64> {
        self.user_processes
    }

    /// Kill every process in the control group once.
    pub fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill();
            self.closed.set(true);
        }
    }

    /// Let commands run again after [`Self::kill`].
    pub fn open(&self) {
        if let Some(group) = &self.group
            && self.closed.take()
        {
            group.open();
        }
    }
}

/// `more` above the number of processes that this user has; `None` for root, whom the kernel does
/// not limit (setrlimit(2), `RLIMIT_NPROC`).
fn user_processes(tree: &Tree, more: u64) -> Option<u64> {
    let user = getuid();
    if user.is_root() {
        return None;
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    let user = user.to_string();
    let names = tree.names("/proc");
    let statuses = names
        .iter()
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let statuses = statuses.filter_map(|name| tree.text(&format!("/proc/{name}/status")));
    let threads = statuses.filter_map(|status| {
        let own = field(&status, "Uid")?.split_whitespace().next() == Some(&user);
        own.then(|| field(&status, "Threads")?.parse::<u64>().ok())?
    });
    Some(threads.sum::<u64>().saturating_add(more).min(hard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_control_groups_the_reason_and_what_is_instead_are_named() {
        let limits = Limits {
            memory_bytes: Some(1 << 20),
            swap_bytes: 0,
            processes: Some(100),
        };
        let (confinement, refused) = Confinement::new(&Tree::at("/nonexistent"), limits);
        assert!(confinement.procs().is_empty());
        let reason = refused.processes.unwrap();
        assert!(reason.contains("no pids control group"), "{reason}");
        assert!(reason.contains("instead"), "{reason}");
        assert!(refused.memory.unwrap().contains("no memory control group"));
        assert_eq!(confinement.user_processes().is_none(), getuid().is_root());
    }
}
