//! Threads as `/proc` shows them (proc(5)): what the scheduler did with each.

use crate::tree::{Tree, field};

/// Bits of a task's flags (include/linux/sched.h).
const KERNEL_THREAD: u32 = 0x0020_0000;
const BOUND: u32 = 0x0400_0000;

/// A task according to `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its name, of at most 15 bytes.
    pub name: String,
    /// The task has ended and has not been reaped.
    pub zombie: bool,
    /// The process number of the parent.
    pub parent: i32,
    /// The task is a kernel thread.
    pub kernel: bool,
    /// The kernel lets nobody move the task to other CPUs.
    pub bound: bool,
    /// Its nice value; meaningless for real-time threads.
    pub nice: i32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// The CPU that the task was last on.
    pub last_cpu: u32,
    /// Its scheduling policy (sched(7)), as the kernel numbers them.
    pub policy: u32,
    /// Its time in guests of KVM, in clock ticks.
    pub guest_ticks: u64,
}

/// The `schedstat` of a thread (kernel documentation, scheduler/sched-stats).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time ready to run, but waiting for a CPU.
    pub delay_ns: u64,
    /// How often the thread was switched to.
    pub switches: u64,
}

impl Schedule {
    /// Parse the text of a `schedstat`; `None` when it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some(Self {
            run_ns: numbers.next()?.ok()?,
            delay_ns: numbers.next()?.ok()?,
            switches: numbers.next()?.ok()?,
        })
    }
}

impl Tree {
    /// The task of a folder such as `/proc/1` or `/proc/1/task/2`; `None` when there is none.
    pub fn task(&self, folder: &str) -> Option<Task> {
        let bytes = self.bytes(&format!("{folder}/stat"))?;
        let text = String::from_utf8_lossy(&bytes);
        // Field 2, the name in parentheses, may hold anything; field 3 follows the last
        // parenthesis.
        let (front, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let flags: u32 = field(9)?.parse().ok()?;
        Some(Task {
            name: front.split_once('(')?.1.to_owned(),
            zombie: field(3)? == "Z",
            parent: field(4)?.parse().ok()?,
            kernel: flags & KERNEL_THREAD != 0,
            bound: flags & BOUND != 0,
            nice: field(19)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
            last_cpu: field(39)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
            guest_ticks: field(43)?.parse().ok()?,
        })
    }

    /// What the scheduler has counted for the task of a folder; `None` where it does not count.
    pub fn schedule(&self, folder: &str) -> Option<Schedule> {
        Schedule::parse(&self.text(&format!("{folder}/schedstat"))?)
    }

    /// The CPUs that the task of a folder may run on, as a list that includes offline CPUs.
    pub fn allowed_cpus(&self, folder: &str) -> Option<String> {
        let status = self.text(&format!("{folder}/status"))?;
        field(&status, "Cpus_allowed_list").map(str::to_owned)
    }

    pub fn threads(&self, pid: i32) -> Vec<i32> {
        let names = self.names(&format!("/proc/{pid}/task"));
        let mut threads: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        threads.sort_unstable();
        threads
    }

    /// The process that a thread belongs to.
    pub fn process_of(&self, tid: i32) -> Option<i32> {
        let status = self.text(&format!("/proc/{tid}/status"))?;
        field(&status, "Tgid")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_task_is_read_whatever_its_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/5/task/6");
        fs::create_dir_all(&folder).unwrap();
        let rest = "S 1 5 5 0 -1 69206080 0 0 0 0 1 2 0 0 20 -5 1 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 \
                    0 0 17 3 0 1 0 7 0";
        fs::write(folder.join("stat"), format!("6 (a) b (c) {rest}")).unwrap();
        fs::write(folder.join("schedstat"), "10 20 30\n").unwrap();
        let status = "Name:\tx\nTgid:\t5\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n";
        fs::write(folder.join("status"), status).unwrap();
        fs::write(root.path().join("proc/5/status"), status).unwrap();
        let tree = Tree::at(root.path());
        let task = tree.task("/proc/5/task/6").unwrap();
        assert_eq!(task.name, "a) b (c");
        assert!(task.kernel && task.bound && !task.zombie);
        assert_eq!((task.nice, task.start_ticks), (-5, 99));
        assert_eq!((task.last_cpu, task.policy, task.guest_ticks), (3, 1, 7));
        let schedule = tree.schedule("/proc/5/task/6").unwrap();
        assert_eq!((schedule.delay_ns, schedule.switches), (20, 30));
        assert_eq!(tree.allowed_cpus("/proc/5/task/6").unwrap(), "0-3");
        assert_eq!((tree.threads(5), tree.process_of(5)), (vec![6], Some(5)));
        assert_eq!(tree.task("/proc/5"), None);
    }
}
