//! A control group that gives threads of other programs less CPU time, and limits nothing else.
//!
//! It lies below the group that the threads are in, so every other limit stays. Its name says who
//! made it: [`sweep`] gives the threads of a dead owner back. Nothing in it is ever killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::cgroup::locate::{Location, Version, locate};
use crate::owner;
use crate::reason;
use crate::tree::{Tree, field};

/// How the names begin; a number, perhaps [`ENABLED`], a dot and the name of the owner follow.
const PREFIX: &str = "vtax-slow-";
/// The parent group passes the controller on only for this group (version 2). The name says so, so
/// that whoever removes the group can turn the controller off again.
const ENABLED: &str = "+";
/// The smallest quota that the kernel accepts (kernel/sched/core.c, `min_cfs_quota_period`).
const LEAST_QUOTA_US: f64 = 1000.0;
/// Shorter periods keep no share exactly at 250 ticks a second; longer periods stall threads for
/// longer.
const PERIOD_US: f64 = 5000.0;
/// The shares of a nice-0 thread (version 1).
const USUAL_SHARES: f64 = 1024.0;
/// The factor of weight for one step of nice (kernel/sched/core.c, `sched_prio_to_weight`).
const NICE_FACTOR: f64 = 1.25;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaGroup {
    folder: PathBuf,
    version: Version,
}

/// Why no group can have a quota here; `None`: a group can.
pub fn obstacle(tree: &Tree) -> Option<String> {
    let Some(found) = locate(tree, "cpu") else {
        return Some(
            "no cpu control group is mounted here; mount cgroup2 on /sys/fs/cgroup".into(),
        );
    };
    let file = match found.version {
        Version::V1 => "cpu.cfs_quota_us",
        Version::V2 => "cgroup.controllers",
    };
    let text = tree.text(&format!("{}/{file}", found.own));
    let has = match found.version {
        Version::V1 => text.is_some(),
        Version::V2 => text.is_some_and(|list| list.split_whitespace().any(|it| it == "cpu")),
    };
    if !has {
        return Some(format!("{}/{file} offers no quota of CPU time", found.own));
    }
    let folder = tree.path(&found.own);
    let writable = nix::unistd::access(&folder, nix::unistd::AccessFlags::W_OK).is_ok();
    (!writable).then(|| format!("{} may not be written; run it as root", folder.display()))
}

impl QuotaGroup {
    /// The group of this number that this process would make below `location`; nothing is made yet.
    pub fn plan(tree: &Tree, location: &Location, number: usize) -> Self {
        let passes = || {
            let list = tree.text(&format!("{}/cgroup.subtree_control", location.own));
            list.is_some_and(|list| list.split_whitespace().any(|name| name == "cpu"))
        };
        let own = location.version == Version::V2 && !passes();
        let mark = if own { ENABLED } else { "" };
        let name = format!("{PREFIX}{number}{mark}.{}", owner::name(tree));
        Self {
            folder: tree.path(&format!("{}/{name}", location.own)),
            version: location.version,
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Make the group, with the weight of threads with these nice values.
    ///
    /// Fails with a reason when the kernel refuses.
    pub fn make(&self, nice: &[i32]) -> Result<(), String> {
        fs::create_dir(&self.folder).map_err(|error| {
            format!(
                "{} cannot be made: {}",
                self.folder.display(),
                reason(&error)
            )
        })?;
        if self.version == Version::V2 {
            self.write("cgroup.type", "threaded")?;
            self.write("../cgroup.subtree_control", "+cpu")?;
        }
        let sum: f64 = nice.iter().map(|nice| NICE_FACTOR.powi(-nice)).sum();
        // The kernel's bounds: 2 to 262,144, and 1 to 10,000.
        let (file, weight) = match self.version {
            Version::V1 => ("cpu.shares", (USUAL_SHARES * sum).clamp(2.0, 262_144.0)),
            Version::V2 => ("cpu.weight", (100.0 * sum).clamp(1.0, 10_000.0)),
        };
        self.write(file, &format!("{weight:.0}"))
    }

    /// Limit the group to this share of one CPU; `None`: no limit.
    ///
    /// Fails with a reason when the kernel refuses.
    pub fn limit(&self, share: Option<f64>) -> Result<(), String> {
        let period = PERIOD_US.max(LEAST_QUOTA_US / share.unwrap_or(1.0));
        let quota = share.map(|share| format!("{:.0}", period * share));
        match self.version {
            Version::V1 => {
                self.write("cpu.cfs_period_us", &format!("{period:.0}"))?;
                self.write("cpu.cfs_quota_us", quota.as_deref().unwrap_or("-1"))
            }
            Version::V2 => {
                let quota = quota.as_deref().unwrap_or("max");
                self.write("cpu.max", &format!("{quota} {period:.0}"))
            }
        }
    }

    /// Move a thread into the group.
    ///
    /// Fails with a reason when the kernel refuses.
    pub fn take(&self, tid: i32) -> Result<(), String> {
        self.write(members(self.version), &tid.to_string())
    }

    /// How long the group's threads were held back, in nanoseconds; `None` where the kernel does
    /// not count that.
    pub fn throttled_ns(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("cpu.stat")).ok()?;
        match self.version {
            Version::V1 => field(&text, "throttled_time")?.parse().ok(),
            Version::V2 => {
                let micros: u64 = field(&text, "throttled_usec")?.parse().ok()?;
                Some(micros * 1000)
            }
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: {}", path.display(), reason(&error)))
    }
}

fn members(version: Version) -> &'static str {
    match version {
        Version::V1 => "tasks",
        Version::V2 => "cgroup.threads",
    }
}

/// Move all threads of a group back to its parent and remove it; true if it is gone.
pub fn release(folder: &Path) -> bool {
    let file = ["tasks", "cgroup.threads"]
        .into_iter()
        .find(|name| folder.join(name).exists());
    // A thread may fork while it moves, and the kernel detaches a thread that has ended a moment
    // later.
    for _ in 0..200 {
        if let Some(file) = file {
            move_up(folder, file);
        }
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                sleep(Duration::from_millis(5));
            }
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
            Ok(()) => {
                pass_no_longer(folder);
                return true;
            }
        }
    }
    false
}

/// Turn the parent's controller off again, unless another such group still exists there.
fn pass_no_longer(folder: &Path) {
    let name = folder.file_name().and_then(|name| name.to_str());
    let number = name
        .and_then(|name| name.split_once('.'))
        .map(|(number, _)| number);
    if let (Some(above), true) = (
        folder.parent(),
        number.is_some_and(|it| it.ends_with(ENABLED)),
    ) && !subfolders(above)
        .iter()
        .any(|name| name.starts_with(PREFIX))
    {
        // The kernel refuses where a group below passes the controller on itself.
        let _ = fs::write(above.join("cgroup.subtree_control"), "-cpu");
    }
}

fn move_up(folder: &Path, file: &str) {
    let above = folder.join("..").join(file);
    let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
    for tid in text.lines() {
        // An error means that the thread has ended, which is just as good.
        let _ = fs::write(&above, tid);
    }
}

/// Give back the threads of every group whose owner is dead; returns how many groups are gone.
pub fn sweep(tree: &Tree) -> usize {
    let Some(location) = locate(tree, "cpu") else {
        return 0;
    };
    let mut folders = vec![location.mount];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for name in subfolders(&tree.path(&folder)) {
            let path = format!("{folder}/{name}");
            match name
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.split_once('.'))
            {
                Some((_, owner)) if owner::is_dead(tree, owner).unwrap_or(false) => {
                    count += usize::from(release(&tree.path(&path)));
                }
                _ => folders.push(path),
            }
        }
    }
    count
}

fn subfolders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version 1 tree with one group, and this process in it.
    fn version_1() -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        for folder in ["proc/self/ns/pid", "sys/fs/cgroup/cpu/a"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let mount = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        fs::write(root.path().join("proc/self/mountinfo"), mount).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "1:cpu:/a\n").unwrap();
        let tree = Tree::at(root.path());
        (root, tree)
    }

    #[test]
    fn quota_period_and_weight_are_written() {
        let (_root, tree) = version_1();
        let group = QuotaGroup::plan(&tree, &locate(&tree, "cpu").unwrap(), 0);
        group.make(&[0, 0]).unwrap();
        group.limit(Some(0.5)).unwrap();
        let text = |name: &str| fs::read_to_string(group.folder().join(name)).unwrap();
        let of = ["cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"].map(text);
        assert_eq!(of, ["5000", "2500", "2048"]);
        fs::write(
            group.folder().join("cpu.stat"),
            "nr_periods 5\nthrottled_time 7\n",
        )
        .unwrap();
        assert_eq!(group.throttled_ns(), Some(7));
    }

    #[test]
    fn the_least_quota_makes_the_period_longer() {
        let (_root, tree) = version_1();
        let group = QuotaGroup::plan(&tree, &locate(&tree, "cpu").unwrap(), 1);
        group.make(&[-5]).unwrap();
        group.limit(Some(0.1)).unwrap();
        let text = |name: &str| fs::read_to_string(group.folder().join(name)).unwrap();
        let of = ["cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"].map(text);
        assert_eq!(of, ["10000", "1000", "3125"]);
        group.limit(None).unwrap();
        let quota = fs::read_to_string(group.folder().join("cpu.cfs_quota_us"));
        assert_eq!(quota.unwrap(), "-1");
    }

    #[test]
    fn version_2_has_the_controller_passed_on_only_while_it_is_needed() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("a");
        fs::create_dir_all(&own).unwrap();
        let control = own.join("cgroup.subtree_control");
        fs::write(&control, "memory\n").unwrap();
        let tree = Tree::at(root.path());
        let location = Location {
            version: Version::V2,
            mount: String::new(),
            own: "/a".into(),
        };
        let groups = [0, 1].map(|number| QuotaGroup::plan(&tree, &location, number));
        for group in &groups {
            fs::create_dir(group.folder()).unwrap();
        }
        assert!(release(groups[0].folder()));
        assert_eq!(fs::read_to_string(&control).unwrap(), "memory\n");
        assert!(release(groups[1].folder()));
        assert_eq!(fs::read_to_string(&control).unwrap(), "-cpu");
        fs::write(&control, "cpu\n").unwrap();
        let group = QuotaGroup::plan(&tree, &location, 2);
        fs::create_dir(group.folder()).unwrap();
        assert!(release(group.folder()));
        assert_eq!(fs::read_to_string(&control).unwrap(), "cpu\n");
    }

    #[test]
    fn only_groups_of_dead_owners_are_released() {
        let (root, tree) = version_1();
        let own = owner::pid_namespace(&tree).unwrap();
        let below = root.path().join("sys/fs/cgroup/cpu/a");
        let dead = below.join(format!("{PREFIX}0.vtax-8-500-{own}"));
        let kept = [
            below.join(format!("{PREFIX}0.vtax-8-500-{}", own + 1)),
            below.join(format!("vtax-8-500-{own}")),
            below.join(format!("{PREFIX}x")),
        ];
        for folder in kept.iter().chain([&dead]) {
            fs::create_dir_all(folder).unwrap();
        }
        assert_eq!(sweep(&tree), 1);
        assert!(!dead.exists() && kept.iter().all(|folder| folder.exists()));
    }
}
