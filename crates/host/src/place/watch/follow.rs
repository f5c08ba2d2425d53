//! The threads of the service domain, followed from window to window.
//!
//! A search reads every process of the machine, so it is rare. In between, only the counters of
//! known threads are read, from files that stay open: one system call for each thread, and never
//! the counters of another thread that got the same number.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use vtax_sys::cpu_list::parse;
use vtax_sys::task::Schedule;
use vtax_sys::tree::Tree;

use crate::place::domain::{Finder, Member};
use crate::place::watch::controller::ThreadKey;

/// `schedstat` has three numbers of at most 20 digits.
const MAX_BYTES: usize = 64;

/// The known threads.
#[derive(Debug, Default)]
pub struct Follower {
    finder: Finder,
    threads: BTreeMap<ThreadKey, Followed>,
    /// Threads whose counters could not be opened.
    pub left_out: usize,
}

#[derive(Debug)]
pub struct Followed {
    pub member: Member,
    /// The guest or user that it works for; `None`: it works for all, or is the guest.
    pub domain: Option<String>,
    /// The CPUs that it may run on; empty where it does not matter.
    pub cpus: Vec<usize>,
    counters: File,
    last: Option<Schedule>,
    /// What it did in the last window; `None`: the thread is new.
    pub spent: Option<Spent>,
}

/// CPU use, in seconds per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Time on a CPU.
    pub cpu: f64,
    /// Time ready, waiting for a CPU.
    pub delay: f64,
}

impl Follower {
    /// Make room for the open files of many threads.
    pub fn new() -> Self {
        // Where the kernel refuses more files, threads are left out, and the user is told.
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
        Self::default()
    }

    /// Search for threads again; `roots` as in [`Finder::find`].
    pub fn search(&mut self, tree: &Tree, roots: &[i32]) {
        let mut known = std::mem::take(&mut self.threads);
        self.left_out = 0;
        for member in self.finder.find(tree, roots) {
            let key = key(&member);
            let old = known.remove(&key);
            match Followed::new(tree, member, old) {
                Some(followed) => {
                    self.threads.insert(key, followed);
                }
                None => self.left_out += usize::from(tree.exists(&format!("/proc/{}", key.tid))),
            }
        }
    }

    /// Read what each thread did in the `seconds` since the last time; threads that have ended are
    /// dropped.
    pub fn read(&mut self, seconds: f64) {
        self.threads.retain(|_, thread| thread.read(seconds));
    }

    /// The threads and their keys.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadKey, &Followed)> {
        self.threads.iter().map(|(key, thread)| (*key, thread))
    }

    pub fn get(&self, key: ThreadKey) -> Option<&Followed> {
        self.threads.get(&key)
    }

    /// The processes that work for a guest or user, and for which. Kernel threads have no process
    /// of their own.
    pub fn processes(&self) -> BTreeMap<i32, String> {
        let threads = self.threads.values().filter(|one| !one.member.task.kernel);
        let named = threads.filter_map(|one| {
            let guest = one.member.guest.as_ref().or(one.domain.as_ref())?;
            Some((one.member.pid, guest.clone()))
        });
        named.collect()
    }
}

impl Followed {
    fn new(tree: &Tree, member: Member, old: Option<Self>) -> Option<Self> {
        let domain = domain(&member);
        // The CPUs of a known thread are read again when it moves.
        if let Some(old) = old.filter(|old| old.domain.is_some() == domain.is_some()) {
            return Some(Self {
                member,
                domain,
                ..old
            });
        }
        let folder = member.folder();
        let cpus = domain
            .as_ref()
            .and_then(|_| parse(&tree.allowed_cpus(&folder)?).ok());
        Some(Self {
            member,
            domain,
            cpus: cpus.unwrap_or_default(),
            counters: File::open(tree.path(&format!("{folder}/schedstat"))).ok()?,
            last: None,
            spent: None,
        })
    }

    /// Read the counters; false when the thread has ended.
    fn read(&mut self, seconds: f64) -> bool {
        let mut bytes = [0; MAX_BYTES];
        let Ok(length) = self.counters.read_at(&mut bytes, 0) else {
            return false;
        };
        let text = bytes
            .get(..length)
            .and_then(|bytes| str::from_utf8(bytes).ok());
        let Some(now) = text.and_then(Schedule::parse) else {
            return false;
        };
        self.spent = self.last.replace(now).map(|before| {
            #[expect(clippy::cast_precision_loss, reason = "times, not counts")]
            let share = |before: u64, now: u64| now.saturating_sub(before) as f64 / 1e9 / seconds;
            Spent {
                cpu: share(before.run_ns, now.run_ns),
                delay: share(before.delay_ns, now.delay_ns),
            }
        });
        true
    }

    /// May the thread be put on other CPUs, and would slow CPUs be new to it?
    pub fn is_movable(&self, fast: &[usize]) -> bool {
        let bound = self.member.task.bound;
        self.domain.is_some() && !bound && self.cpus.iter().any(|cpu| fast.contains(cpu))
    }
}

/// The key that identifies a thread for good.
pub fn key(member: &Member) -> ThreadKey {
    ThreadKey {
        pid: member.pid,
        tid: member.tid,
        start_ticks: member.task.start_ticks,
    }
}

/// The guest that a service thread works for, or the user of its process, as in `vtax place
/// advise`. `None`: it works for everybody, or for nobody.
fn domain(member: &Member) -> Option<String> {
    if member.role.is_shared() || !member.role.is_service() {
        return None;
    }
    let process = || format!("{} ({})", member.process, member.pid);
    Some(member.guest.clone().unwrap_or_else(process))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const FAST: [usize; 1] = [0];

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// QEMU with a vCPU, and a switch that belongs to no guest.
    fn machine(root: &Path) {
        let process = |pid: i32, arguments: &str, threads: &[(i32, &str)]| {
            put(root, &format!("proc/{pid}/cmdline"), arguments);
            for (tid, name) in threads {
                let rest = "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
                            0 17 0 0 0 0 0 0";
                let folder = format!("proc/{pid}/task/{tid}");
                for path in [format!("proc/{pid}/stat"), format!("{folder}/stat")] {
                    put(root, &path, &format!("{tid} ({name}) {rest}"));
                }
                put(root, &format!("{folder}/schedstat"), "1000000000 0 5\n");
                put(
                    root,
                    &format!("{folder}/status"),
                    "Cpus_allowed_list:\t0-1\n",
                );
            }
            put(
                root,
                &format!("proc/{pid}/stat"),
                &format!(
                    "{pid} ({}) {}",
                    threads[0].1,
                    "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 \
                 0 0"
                ),
            );
        };
        process(
            100,
            "qemu-system-x86_64\0-name\0web\0",
            &[
                (100, "qemu-system-x86"),
                (101, "CPU 0/KVM"),
                (102, "IO io1"),
            ],
        );
        process(200, "vde_switch\0", &[(200, "vde_switch")]);
    }

    fn domains(follower: &Follower) -> Vec<Option<String>> {
        follower
            .threads()
            .map(|(_, one)| one.domain.clone())
            .collect()
    }

    #[test]
    fn known_threads_are_followed_and_the_dead_forgotten() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        let tree = Tree::at(root.path());
        let mut follower = Follower::new();
        follower.search(&tree, &[]);
        let web = || Some("web".to_owned());
        let switch = Some("vde_switch (200)".to_owned());
        assert_eq!(domains(&follower), [web(), None, web(), switch]);
        follower.read(1.0);
        assert!(follower.threads().all(|(_, one)| one.spent.is_none()));
        put(
            root.path(),
            "proc/100/task/100/schedstat",
            "2000000000 500000000 9\n",
        );
        put(root.path(), "proc/100/task/102/schedstat", "");
        // A search keeps the earlier counts.
        follower.search(&tree, &[]);
        follower.read(2.0);
        let (_, first) = follower.threads().next().unwrap();
        let expected = Spent {
            cpu: 0.5,
            delay: 0.25,
        };
        assert_eq!(first.spent, Some(expected));
        assert_eq!(follower.threads().count(), 3, "one has ended");
        assert_eq!(follower.processes().len(), 2);
    }

    #[test]
    fn threads_that_run_on_slow_cores_only_are_not_for_moving() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        put(
            root.path(),
            "proc/100/task/102/status",
            "Cpus_allowed_list:\t1\n",
        );
        let mut follower = Follower::new();
        follower.search(&Tree::at(root.path()), &[]);
        let movable: Vec<i32> = follower
            .threads()
            .filter(|(_, one)| one.is_movable(&FAST))
            .map(|(key, _)| key.tid)
            .collect();
        assert_eq!(movable, [100, 200]);
    }
}
