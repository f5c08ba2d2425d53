//! A root on a disk image: finding its partition and mounting it read-only.

use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount, umount};

use crate::root::InitError;
use vtax_sys::tree::Tree;

const BLOCK_DEVICES: &str = "/sys/class/block";
/// The device is read-only, so an unfinished journal cannot be replayed.
const OPTIONS: &str = "noload";
/// A file system with one of these files is a root.
const SHELLS: [&str; 2] = ["bin/sh", "usr/bin/sh"];

/// Mount the first ext4 file system with a shell, on the device itself or on one of its partitions.
pub(crate) fn mount_root(device: &Path, target: &Path) -> Result<(), InitError> {
    for candidate in candidates(&Tree::host(), device) {
        let flags = MsFlags::MS_RDONLY;
        if mount(Some(&candidate), target, Some("ext4"), flags, Some(OPTIONS)).is_err() {
            continue;
        }
        if SHELLS
            .iter()
            .any(|shell| target.join(shell).symlink_metadata().is_ok())
        {
            return Ok(());
        }
        umount(target)
            .map_err(|errno| InitError::errno(format!("umount {}", candidate.display()), errno))?;
    }
    Err(InitError::new(
        format!("disk {}", device.display()),
        "no ext4 file system with a shell on it or on its partitions",
    ))
}

/// The device and its partitions, in order.
fn candidates(tree: &Tree, device: &Path) -> Vec<PathBuf> {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let mut found: Vec<String> = tree
        .names(BLOCK_DEVICES)
        .into_iter()
        .filter(|each| each.starts_with(name.as_ref()))
        .collect();
    found.sort();
    found
        .iter()
        .map(|each| Path::new("/dev").join(each))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_disk_comes_before_its_partitions_and_others_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for name in ["vdb", "vda2", "vda", "vda1"] {
            fs::create_dir_all(root.path().join("sys/class/block").join(name)).unwrap();
        }
        let found = candidates(&Tree::at(root.path()), Path::new("/dev/vda"));
        let expected = ["/dev/vda", "/dev/vda1", "/dev/vda2"].map(PathBuf::from);
        assert_eq!(found, expected);
    }
}
