//! Where this process's control groups are: `/proc/self/cgroup` against `/proc/self/mountinfo`.

use crate::tree::Tree;

/// The kernel's two interfaces to control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// The control group of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Which interface its files have.
    pub version: Version,
    /// Where the hierarchy is mounted.
    pub mount: String,
    /// The group's folder; equal to `mount` or below it.
    pub own: String,
}

impl Location {
    /// The group's folder and the folders above it up to the mount point.
    pub fn ancestry(&self) -> Vec<&str> {
        let mut folders = vec![self.own.as_str()];
        let mut folder = self.own.as_str();
        while folder.len() > self.mount.len() {
            let Some((above, _)) = folder.rsplit_once('/') else {
                break;
            };
            folder = above;
            folders.push(folder);
        }
        folders
    }

    /// The parent of the group's folder; `None` at the top.
    pub fn parent(&self) -> Option<&str> {
        self.ancestry().get(1).copied()
    }
}

/// The group by which `controller` (such as `memory`) governs this process; `None` where there is
/// no such group or its hierarchy is not visible.
pub fn locate(tree: &Tree, controller: &str) -> Option<Location> {
    locate_of(tree, "/proc/self", controller)
}

/// The group of the process or thread of a folder such as `/proc/1/task/2`.
pub fn locate_of(tree: &Tree, folder: &str, controller: &str) -> Option<Location> {
    let groups = tree.text(&format!("{folder}/cgroup"))?;
    let mounts = mounts(tree);
    let with_controller = |list: &str| list.split(',').any(|name| name == controller);
    for (controllers, path) in groups.lines().filter_map(group) {
        if with_controller(controllers) {
            let mount = mounts
                .iter()
                .find(|mount| mount.kind == "cgroup" && with_controller(&mount.super_options))?;
            return location(Version::V1, mount, path);
        }
    }
    let (_, path) = groups
        .lines()
        .filter_map(group)
        .find(|(list, _)| list.is_empty())?;
    let mount = mounts.iter().find(|mount| mount.kind == "cgroup2")?;
    location(Version::V2, mount, path)
}

/// `ID:CONTROLLERS:PATH` (cgroups(7)).
fn group(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    rest.split_once(':')
}

fn location(version: Version, mount: &Mount, path: &str) -> Option<Location> {
    // In a container the mount may begin in the middle of the hierarchy.
    let inside = if mount.root == "/" {
        path
    } else {
        path.strip_prefix(&mount.root)?
    };
    if inside.split('/').any(|part| part == "..") {
        return None;
    }
    let own = format!("{}/{}", mount.point, inside.trim_matches('/'));
    Some(Location {
        version,
        mount: mount.point.clone(),
        own: own.trim_end_matches('/').to_owned(),
    })
}

struct Mount {
    root: String,
    point: String,
    kind: String,
    super_options: String,
}

fn mounts(tree: &Tree) -> Vec<Mount> {
    let text = tree.text("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

/// One line of mountinfo (proc(5)): the fields after ` - ` come after a variable number of others.
fn mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let front: Vec<&str> = front.split(' ').collect();
    let back: Vec<&str> = back.split(' ').collect();
    Some(Mount {
        root: unescape(front.get(3)?),
        point: unescape(front.get(4)?),
        kind: (*back.first()?).to_owned(),
        super_options: (*back.get(2)?).to_owned(),
    })
}

/// The kernel writes space, tab, newline and backslash as `\040` and the like.
fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

/// Is the root of the file system mounted read-only? `None` when the kernel does not say.
pub fn root_is_read_only(tree: &Tree) -> Option<bool> {
    let text = tree.text("/proc/self/mountinfo")?;
    // The last file system mounted on `/` is the visible one.
    let line = text
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some("/"))?;
    let (front, back) = line.split_once(" - ")?;
    let read_only = |options: Option<&str>| {
        options.is_some_and(|options| options.split(',').any(|option| option == "ro"))
    };
    Some(read_only(front.split(' ').nth(5)) || read_only(back.split(' ').nth(2)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(groups: &str, mounts: &str) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), groups).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
        let tree = Tree::at(root.path());
        (root, tree)
    }

    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_1_by_its_controller() {
        let (_root, tree) = tree(
            "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n",
            "35 31 0:32 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
        );
        let memory = locate(&tree, "memory").unwrap();
        assert_eq!(memory.version, Version::V1);
        assert_eq!(memory.own, "/sys/fs/cgroup/memory/a/b");
        assert_eq!(
            memory.ancestry(),
            [
                "/sys/fs/cgroup/memory/a/b",
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/memory"
            ]
        );
        let cpu = locate(&tree, "cpu").unwrap();
        assert_eq!(cpu.own, "/sys/fs/cgroup/cpu");
        assert_eq!(cpu.parent(), None);
    }

    #[test]
    fn version_2_and_a_mount_inside_a_container() {
        let (_root, tree) = tree("0::/user.slice/x\n", V2_MOUNT);
        let found = locate(&tree, "memory").unwrap();
        assert_eq!(found.version, Version::V2);
        assert_eq!(found.own, "/sys/fs/cgroup/user.slice/x");

        let (_root, tree) = self::tree("0::/docker/1/x\n", &V2_MOUNT.replace(" / ", " /docker/1 "));
        assert_eq!(locate(&tree, "memory").unwrap().own, "/sys/fs/cgroup/x");
    }

    #[test]
    fn what_cannot_be_seen_is_none() {
        let (_root, outside) = tree("0::/../other\n", V2_MOUNT);
        assert_eq!(locate(&outside, "memory"), None);
        let (_root, not_mounted) = tree("4:memory:/\n0::/\n", "");
        assert_eq!(locate(&not_mounted, "memory"), None);
        assert_eq!(locate(&Tree::at("/nonexistent"), "memory"), None);
    }

    #[test]
    fn a_read_only_root_is_recognised() {
        let check = |mounts: &str| root_is_read_only(&tree("", mounts).1);
        assert_eq!(
            check("23 1 0:2 / / ro,relatime - ext4 /dev/vda rw\n"),
            Some(true)
        );
        assert_eq!(check("23 1 0:2 / / rw - ext4 /dev/vda ro\n"), Some(true));
        assert_eq!(check("23 1 0:2 / / rw - ext4 /dev/vda rw\n"), Some(false));
        assert_eq!(check(""), None);
    }
}
