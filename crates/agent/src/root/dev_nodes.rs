//! What programs expect below `/dev` and the kernel's devtmpfs does not make.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use crate::root::InitError;
use vtax_sys::reason;

/// Links that udev or an init makes elsewhere, for bash's `<( )`, `/dev/stdout` as an output file,
/// and so on.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
];

/// Complete `/dev` of the root at `root`, where the kernel's devtmpfs is mounted.
///
/// Fails when a link cannot be made.
pub(super) fn complete(root: &str) -> Result<(), InitError> {
    let folder = format!("{root}/dev");
    link_all(Path::new(&folder))?;
    // A guest's kernel may lack POSIX queues; a program that wants them reports it.
    let queues = format!("{folder}/mqueue");
    if fs::create_dir_all(&queues).is_ok()
        && mount(
            Some("mqueue"),
            queues.as_str(),
            Some("mqueue"),
            MsFlags::empty(),
            None::<&str>,
        )
        .is_err()
    {
        let _ = fs::remove_dir(&queues);
    }
    Ok(())
}

fn link_all(folder: &Path) -> Result<(), InitError> {
    for (name, target) in LINKS {
        match symlink(target, folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(InitError::new(format!("/dev/{name}"), reason(&error)));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_linked_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("core"), "own").unwrap();
        link_all(folder.path()).unwrap();
        link_all(folder.path()).unwrap();
        let target = fs::read_link(folder.path().join("fd")).unwrap();
        assert_eq!(target, Path::new("/proc/self/fd"));
        assert_eq!(
            fs::read_to_string(folder.path().join("core")).unwrap(),
            "own"
        );
        assert!(link_all(&folder.path().join("none")).is_err());
    }
}
