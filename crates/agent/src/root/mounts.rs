//! Moves from the kernel's first root to a root over the host's tree.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};

use crate::root::InitError;
use crate::root::parameters::{Export, FolderSource};
use crate::root::{dev_nodes, disk, vsock};
use vtax_sys::reason;

/// A folder that every root has, even a read-only root: everything else is made on a tmpfs there.
const SCRATCH: &str = "/tmp";
const LOWER: &str = "/tmp/lower";
const UPPER: &str = "/tmp/upper";
const OVERLAY_WORK: &str = "/tmp/work";
const ROOT: &str = "/tmp/root";
/// Below this folder are the whole exports of which only a folder is used.
const EXPORTS: &str = "/tmp/exports";
/// Where the guest finds its writable folder.
const WORK: &str = "/run/vtax/work";
/// Where the host's tree is when the root is not made from it.
const HOST: &str = "/run/vtax/host";

/// The transport for which this program makes the connection.
const VSOCK: &str = "vsock";
/// The port of 9P (IANA).
const PLAN9_PORT: u32 = 564;

const EXPORT_PATIENCE: Duration = Duration::from_secs(10);
const EXPORT_ROUND: Duration = Duration::from_millis(5);

/// A file system to mount: type, source, options, flags.
struct FileSystem<'a> {
    kind: &'a str,
    source: &'a str,
    options: &'a str,
    flags: MsFlags,
}

/// The content of `/proc/cmdline`.
///
/// `/proc` is mounted first, even where there seems to be one: hostfs shows the host's.
pub(crate) fn kernel_command_line() -> Result<String, InitError> {
    let path = "/proc/cmdline";
    put(&plain("proc"), "/proc")?;
    fs::read_to_string(path).map_err(|error| InitError::new(path, reason(&error)))
}

/// Make devices appear in the first root, as far as finding a channel needs them.
pub(crate) fn devices() -> Result<(), InitError> {
    put(&plain("sysfs"), "/sys")?;
    put(&plain("devtmpfs"), "/dev")
}

/// Make an overlay over the host's tree and move into it.
pub(crate) fn overlay_root(
    tree: &FolderSource,
    work: Option<&FolderSource>,
) -> Result<(), InitError> {
    put(&plain("tmpfs"), SCRATCH)?;
    let lower = lower(tree)?;
    for folder in [UPPER, OVERLAY_WORK] {
        make(folder)?;
    }
    let options = format!("lowerdir={lower},upperdir={UPPER},workdir={OVERLAY_WORK}");
    put(
        &FileSystem {
            options: &options,
            ..plain("overlay")
        },
        ROOT,
    )?;
    put(&plain("proc"), &format!("{ROOT}/proc"))?;
    put(&plain("sysfs"), &format!("{ROOT}/sys"))?;
    put(&plain("devtmpfs"), &format!("{ROOT}/dev"))?;
    volatile(ROOT, "mode=1777")?;
    let target = format!("{ROOT}{WORK}");
    match work {
        None => make(&target)?,
        Some(source) => put_work(source, &target)?,
    }
    switch()
}

/// Complete the initramfs into a whole root; call [`kernel_command_line`] and [`devices`] first.
pub(crate) fn initramfs_root() -> Result<(), InitError> {
    // Guests' memory lies in /dev/shm: half of the machine's memory, the default, is too little.
    volatile("", "mode=1777,size=100%")?;
    put(
        &FileSystem {
            options: "mode=1777",
            ..plain("tmpfs")
        },
        SCRATCH,
    )?;
    // Only KVM's counters are there, and they have a second source.
    let _ = put(&plain("debugfs"), "/sys/kernel/debug");
    make(WORK)
}

/// Mounts that are deferred until the request `enter`.
#[derive(Debug, Default)]
pub struct Deferred {
    host: Option<Export>,
    work: Option<FolderSource>,
    mounted: Vec<&'static str>,
}

impl Deferred {
    pub(crate) fn new(host: Option<Export>, work: Option<FolderSource>) -> Self {
        Self {
            host,
            work,
            mounted: Vec::new(),
        }
    }

    /// Mount what is not mounted yet; returns all deferred mounts that are in place.
    ///
    /// Fails when a mount point cannot be made or the kernel refuses a mount. A later call tries
    /// the missing mounts again.
    pub fn enter(&mut self) -> Result<&[&'static str], InitError> {
        if let Some(export) = &self.host {
            put_plan9(export, "loose", MsFlags::MS_RDONLY, HOST)?;
            self.mounted.push(HOST);
            self.host = None;
        }
        if let Some(source) = &self.work {
            put_work(source, WORK)?;
            self.mounted.push(WORK);
            self.work = None;
        }
        Ok(&self.mounted)
    }
}

/// Make the tree visible, read-only; returns its mount point.
fn lower(source: &FolderSource) -> Result<&'static str, InitError> {
    match source {
        // User-mode Linux already has the tree as its first root.
        FolderSource::Hostfs(path) if path == Path::new("/") => Ok("/"),
        FolderSource::Hostfs(path) => {
            put(&hostfs(&path.to_string_lossy(), MsFlags::MS_RDONLY), LOWER)?;
            Ok(LOWER)
        }
        FolderSource::Plan9(export) => {
            // Nothing changes the host's tree meanwhile, so cached content stays valid.
            put_plan9(export, "loose", MsFlags::MS_RDONLY, LOWER)?;
            Ok(LOWER)
        }
        FolderSource::Disk(device) => {
            make(LOWER)?;
            disk::mount_root(device, Path::new(LOWER))?;
            Ok(LOWER)
        }
    }
}

/// The file systems in memory that every root has, and the terminals.
fn volatile(root: &str, shared_memory: &str) -> Result<(), InitError> {
    for (kind, options, folder) in [
        ("devpts", "mode=620,ptmxmode=666", "/dev/pts"),
        ("tmpfs", shared_memory, "/dev/shm"),
        ("tmpfs", "mode=755", "/run"),
    ] {
        let file_system = FileSystem {
            options,
            ..plain(kind)
        };
        put(&file_system, &format!("{root}{folder}"))?;
    }
    dev_nodes::complete(root)
}

fn put_work(source: &FolderSource, target: &str) -> Result<(), InitError> {
    match source {
        FolderSource::Hostfs(path) => {
            put(&hostfs(&path.to_string_lossy(), MsFlags::empty()), target)
        }
        // mmap: the host reads the results, so writes must reach it; files can be mapped.
        FolderSource::Plan9(export) => put_plan9(export, "mmap", MsFlags::empty(), target),
        // The parameters do not allow a disk here.
        FolderSource::Disk(device) => Err(InitError::new(
            format!("work folder {}", device.display()),
            "a disk is only for the root",
        )),
    }
}

/// Mount a 9p export or a folder of it.
fn put_plan9(export: &Export, cache: &str, flags: MsFlags, target: &str) -> Result<(), InitError> {
    let whole = plan9(export, cache, flags)?;
    let Some(folder) = &export.folder else {
        return put_in_time(&whole.as_file_system(), target);
    };
    let outer = format!("{EXPORTS}/{}", export.tag);
    put_in_time(&whole.as_file_system(), &outer)?;
    make(target)?;
    let inside = format!("{outer}/{folder}");
    let bind = MsFlags::MS_BIND;
    mount(
        Some(inside.as_str()),
        target,
        None::<&str>,
        bind,
        None::<&str>,
    )
    .map_err(|errno| InitError::errno(format!("bind {inside} on {target}"), errno))
}

/// Move into the new root. The first root stays beneath: it cannot be unmounted, and nothing in it
/// is reachable.
fn switch() -> Result<(), InitError> {
    let failed = |errno| InitError::errno("switch root", errno);
    chdir(ROOT).map_err(failed)?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>).map_err(failed)?;
    chroot(".").map_err(failed)?;
    chdir("/").map_err(failed)
}

fn plain(kind: &str) -> FileSystem<'_> {
    FileSystem {
        kind,
        source: kind,
        options: "",
        flags: MsFlags::empty(),
    }
}

fn hostfs(path: &str, flags: MsFlags) -> FileSystem<'_> {
    // The mount option is the host's path.
    FileSystem {
        kind: "hostfs",
        source: "none",
        options: path,
        flags,
    }
}

struct Plan9 {
    tag: String,
    options: String,
    flags: MsFlags,
    /// The mount takes its own reference.
    _connection: Option<OwnedFd>,
}

fn plan9(export: &Export, cache: &str, flags: MsFlags) -> Result<Plan9, InitError> {
    let Export { transport, tag, .. } = export;
    let connection = (transport == VSOCK).then(|| vsock::open(PLAN9_PORT));
    let connection = connection.transpose()?;
    let (transport, cache) = match &connection {
        None => (transport.clone(), cache),
        // The server works as one user, whatever user of the guest asks, and may know no extended
        // attributes, for which each exec would ask it. It numbers files by their inodes alone: a
        // cache by number would take files of two file systems for one.
        Some(socket) => {
            let fd = socket.as_raw_fd();
            let how = "access=any,noxattr,aname=/run/vtax";
            (format!("fd,rfdno={fd},wfdno={fd},{how}/{tag}"), "mmap")
        }
    };
    // With the default message size of 8 KiB, each 8 KiB read would cost a VM exit.
    let options = format!("trans={transport},version=9p2000.L,cache={cache},msize=1048576");
    Ok(Plan9 {
        tag: tag.clone(),
        options,
        flags,
        _connection: connection,
    })
}

impl Plan9 {
    fn as_file_system(&self) -> FileSystem<'_> {
        FileSystem {
            kind: "9p",
            source: &self.tag,
            options: &self.options,
            flags: self.flags,
        }
    }
}

fn put(file_system: &FileSystem<'_>, target: &str) -> Result<(), InitError> {
    make(target)?;
    file_system
        .mount(target)
        .map_err(file_system.failed(target))
}

/// Mount what a driver offers, which it does a moment after it was loaded: until then Xen's
/// transport has no such export (`EINVAL`), and virtio's neither (`ENOENT`).
fn put_in_time(file_system: &FileSystem<'_>, target: &str) -> Result<(), InitError> {
    make(target)?;
    let deadline = Instant::now() + EXPORT_PATIENCE;
    loop {
        match file_system.mount(target) {
            Err(Errno::EINVAL | Errno::ENOENT) if Instant::now() < deadline => {
                sleep(EXPORT_ROUND);
            }
            done => return done.map_err(file_system.failed(target)),
        }
    }
}

impl FileSystem<'_> {
    fn mount(&self, target: &str) -> nix::Result<()> {
        let (kind, options) = (Some(self.kind), Some(self.options));
        mount(Some(self.source), target, kind, self.flags, options)
    }

    fn failed(&self, target: &str) -> impl FnOnce(Errno) -> InitError {
        let what = format!("mount {} on {target}", self.kind);
        move |errno| InitError::errno(what, errno)
    }
}

fn make(folder: &str) -> Result<(), InitError> {
    if Path::new(folder).is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)
        .map_err(|error| InitError::new(format!("mkdir {folder}"), reason(&error)))
}
