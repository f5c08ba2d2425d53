//! Keeps workloads, which are root too, away from this process, its channel and the kernel.
//!
//! The protection rests on what cannot be undone (`docs/security.md`): capabilities that are in no
//! set, kernel helpers without capabilities, no further modules, no other kernel. Read-only `/sys`
//! and `/proc/sys` only prevent accidents: root may mount them again.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl::set_dumpable;
use vtax_sys::calls::privileges::{Capability, withhold};
use vtax_sys::tree::Tree;

use crate::guest::device;
use crate::root::InitError;
use vtax_sys::reason;

/// Capabilities that no workload gets.
const WITHHELD: [Capability; 6] = [
    Capability::DacReadSearch,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysPtrace,
    Capability::SysBoot,
    Capability::Mknod,
];
/// Programs that the kernel itself starts (for a core dump, a module, an event, an empty group) run
/// without capabilities after this; no module can be loaded and no other kernel started. None of
/// these settings can be undone.
const SETTINGS: [(&str, &str); 5] = [
    ("/proc/sys/kernel/usermodehelper/bset", "0 0"),
    ("/proc/sys/kernel/usermodehelper/inheritable", "0 0"),
    ("/proc/sys/kernel/modules_disabled", "1"),
    ("/proc/sys/kernel/kexec_load_disabled", "1"),
    ("/sys/kernel/uevent_helper", "\n"),
];
const SECURITY: &str = "/sys/kernel/security";
/// Forbids root to change the kernel through `/dev/mem`, registers of PCI devices, or eBPF.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const READ_ONLY: [&str; 3] = ["/proc/sys", "/proc/sysrq-trigger", "/sys"];

/// Apply all protections; returns the mount namespace for workloads.
pub(super) fn keep() -> Result<OwnedFd, InitError> {
    set_dumpable(false).map_err(step("dumpable"))?;
    // Root could swap it out to its own file, and read and change it there.
    let as_used = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    let all = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | as_used;
    mlockall(all).map_err(step("mlockall"))?;
    for (path, value) in SETTINGS {
        set(path, value)?;
    }
    let page = device::find(&Tree::host()).ok();
    if page.is_none() {
        lock_down();
    }
    let mounts = other_mounts(page.as_deref())?;
    for capability in WITHHELD {
        withhold(capability).map_err(step("capabilities"))?;
    }
    Ok(mounts)
}

/// A setting that this kernel does not have needs no change.
fn set(path: &str, value: &str) -> Result<(), InitError> {
    if !Path::new(path).exists() {
        return Ok(());
    }
    fs::write(path, value).map_err(|error| InitError::new(path, reason(&error)))
}

/// Lock the kernel down if it can be. A guest that is to write a device's memory is not locked
/// down: the memory could not be mapped then.
fn lock_down() {
    let kind = Some("securityfs");
    let mounted = mount(kind, SECURITY, kind, MsFlags::empty(), None::<&str>).is_ok();
    let _ = fs::write(LOCKDOWN, "integrity");
    if mounted {
        let _ = umount(SECURITY);
    }
}

/// A copy of the mounts, for workloads to change; this process keeps its own.
fn other_mounts(page: Option<&Path>) -> Result<OwnedFd, InitError> {
    let failed = step("mounts of workloads");
    let own = namespace()?;
    // What is mounted here later also appears there, but not the other way round.
    change("/", MsFlags::MS_REC | MsFlags::MS_SHARED)?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(&failed)?;
    change("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)?;
    if let Some(page) = page {
        bind(page)?;
    }
    for path in READ_ONLY.map(Path::new) {
        if path.exists() {
            bind(path)?;
            let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            change(&path.to_string_lossy(), read_only)?;
        }
    }
    let theirs = namespace()?;
    setns(own, CloneFlags::CLONE_NEWNS).map_err(&failed)?;
    Ok(theirs)
}

fn namespace() -> Result<OwnedFd, InitError> {
    let path = "/proc/self/ns/mnt";
    let opened = File::open(path).map_err(|error| InitError::new(path, reason(&error)))?;
    Ok(opened.into())
}

/// Mount a path on itself.
fn bind(path: &Path) -> Result<(), InitError> {
    mount(
        Some(path),
        path,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )
    .map_err(|errno| InitError::errno(format!("bind {}", path.display()), errno))
}

fn change(path: &str, flags: MsFlags) -> Result<(), InitError> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .map_err(|errno| InitError::errno(format!("change the mount {path}"), errno))
}

fn step(name: &'static str) -> impl Fn(Errno) -> InitError {
    move |errno| InitError::errno(name, errno)
}
