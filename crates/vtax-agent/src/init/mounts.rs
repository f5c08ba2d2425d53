//! From the kernel's first root to one over the host's tree.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};

use crate::error::reason;
use crate::init::InitError;
use crate::init::parameters::{Parameters, Source};

/// A folder that every root has, also a read-only one: everything else is made on a tmpfs there.
const SCRATCH: &str = "/tmp";
const LOWER: &str = "/tmp/lower";
const UPPER: &str = "/tmp/upper";
const OVERLAY_WORK: &str = "/tmp/work";
const ROOT: &str = "/tmp/root";
/// Where the guest finds its writable folder.
const WORK: &str = "run/vtax/work";

/// A file system to mount: type, source, options, flags.
struct FileSystem<'a> {
    kind: &'a str,
    source: &'a str,
    options: &'a str,
    flags: MsFlags,
}

/// What `/proc/cmdline` says.
///
/// `/proc` is mounted first, also where it seems to be: hostfs shows the host's.
pub(super) fn kernel_command_line() -> Result<String, InitError> {
    let path = "/proc/cmdline";
    put(&plain("proc"), "/proc")?;
    fs::read_to_string(path).map_err(|error| InitError::new(path, reason(&error)))
}

/// Build the new root and move into it.
pub(super) fn enter_root(parameters: &Parameters) -> Result<(), InitError> {
    put(&plain("tmpfs"), SCRATCH)?;
    let lower = lower(&parameters.lower)?;
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
    fill(parameters.work.as_ref())?;
    switch()
}

/// Make the host's tree visible, read-only; returns where.
fn lower(source: &Source) -> Result<&'static str, InitError> {
    match source {
        // User-mode Linux has it as its first root already.
        Source::Hostfs(path) if path == Path::new("/") => Ok("/"),
        Source::Hostfs(path) => {
            put(&hostfs(&path.to_string_lossy(), MsFlags::MS_RDONLY), LOWER)?;
            Ok(LOWER)
        }
        Source::Plan9(tag) => {
            // Nothing changes the host's tree meanwhile, so what was read once is kept.
            put(
                &plan9(tag, "loose", MsFlags::MS_RDONLY).as_file_system(),
                LOWER,
            )?;
            Ok(LOWER)
        }
    }
}

fn fill(work: Option<&Source>) -> Result<(), InitError> {
    let inside = |path: &str| format!("{ROOT}/{path}");
    put(&plain("proc"), &inside("proc"))?;
    put(&plain("sysfs"), &inside("sys"))?;
    put(&plain("devtmpfs"), &inside("dev"))?;
    put(
        &FileSystem {
            options: "mode=620,ptmxmode=666",
            ..plain("devpts")
        },
        &inside("dev/pts"),
    )?;
    put(
        &FileSystem {
            options: "mode=1777",
            ..plain("tmpfs")
        },
        &inside("dev/shm"),
    )?;
    put(
        &FileSystem {
            options: "mode=755",
            ..plain("tmpfs")
        },
        &inside("run"),
    )?;
    let target = inside(WORK);
    match work {
        None => make(&target),
        Some(Source::Hostfs(path)) => {
            put(&hostfs(&path.to_string_lossy(), MsFlags::empty()), &target)
        }
        // mmap: the host reads the results, so writes must reach it; mapping files works.
        Some(Source::Plan9(tag)) => put(
            &plan9(tag, "mmap", MsFlags::empty()).as_file_system(),
            &target,
        ),
    }
}

/// The first root stays beneath; it cannot be unmounted, and nothing of it is reachable.
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
    // Its option is the host's path.
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
}

fn plan9(tag: &str, cache: &str, flags: MsFlags) -> Plan9 {
    // The default message size of 8 KiB costs an exit of the guest for each 8 KiB read.
    let options = format!("trans=virtio,version=9p2000.L,cache={cache},msize=1048576");
    Plan9 {
        tag: tag.into(),
        options,
        flags,
    }
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
    let FileSystem {
        kind,
        source,
        options,
        flags,
    } = file_system;
    mount(Some(*source), target, Some(*kind), *flags, Some(*options))
        .map_err(|errno| InitError::errno(format!("mount {kind} on {target}"), errno))
}

fn make(folder: &str) -> Result<(), InitError> {
    if Path::new(folder).is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)
        .map_err(|error| InitError::new(format!("mkdir {folder}"), reason(&error)))
}
