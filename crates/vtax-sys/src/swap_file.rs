//! A swap file that an agent makes for the commands that it limits, and that goes with it.
//!
//! Its name says whose it is, so the folder is the record of what killed agents left. No other swap
//! device is ever turned off.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;

use crate::calls::memory::page_bytes;
use crate::calls::swap;
use crate::tree::Tree;
use crate::{owner, reason};

const EXTENSION: &str = ".swap";
/// Where the kernel's `union swap_header` has its fields, and its mark at the page's end.
const FIELDS_OFFSET: usize = 1024;
const MARK: &[u8] = b"SWAPSPACE2";
const VERSION: u32 = 1;
/// mkswap(8) makes none smaller.
const SMALLEST_PAGES: u64 = 10;

/// A swap file in use. Dropping it turns it off and removes it.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
}

impl SwapFile {
    /// Make a file of `bytes` in `folder` and swap to it, before all other swap devices.
    ///
    /// Fails, with one line that says why and what to do, when the file system is full or cannot
    /// hold a swap file, and without the capability `SYS_ADMIN`.
    pub fn on(tree: &Tree, folder: &Path, bytes: u64) -> Result<Self, String> {
        let path = folder.join(format!("{}{EXTENSION}", owner::name(tree)));
        let this = Self { path };
        // From here on dropping removes it.
        this.make(bytes)
            .map_err(|error| this.explain(error, "free space there"))?;
        swap::on(&this.c_path()?).map_err(|errno| {
            let remedy = match errno {
                Errno::EPERM => "run vtax as root",
                Errno::EINVAL => "its file system cannot hold one: use a folder on ext4 or xfs",
                _ => "use a folder on ext4 or xfs",
            };
            this.explain(errno.into(), remedy)
        })?;
        Ok(this)
    }

    fn make(&self, bytes: u64) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        let page = page_bytes();
        let header = header(bytes / page, page)?;
        allocate(&file, bytes / page * page)?;
        file.write_all(&header)?;
        file.sync_all()
    }

    fn explain(&self, error: io::Error, remedy: &str) -> String {
        format!(
            "swap file {}: {}; {remedy}",
            self.path.display(),
            reason(&error)
        )
    }

    fn c_path(&self) -> Result<CString, String> {
        let bytes = self.path.as_os_str().as_bytes();
        CString::new(bytes).map_err(|error| error.to_string())
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Turn off and remove the swap files in `folder` whose agents are dead; returns how many.
pub fn sweep(tree: &Tree, folder: &Path) -> usize {
    let names = Tree::at(folder).names("/");
    let left = names.iter().filter(|name| {
        let own = name.strip_suffix(EXTENSION);
        own.and_then(|own| owner::is_dead(tree, own)) == Some(true)
    });
    left.filter(|name| remove(&folder.join(name))).count()
}

/// False when it is still in use: then the file stays, so that a later sweep finds it.
fn remove(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    match swap::off(&name) {
        // EINVAL: it was not on; ENOENT: nor made. EPERM: who may not turn it off turned none on.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::EPERM) => fs::remove_file(path).is_ok(),
        Err(_) => false,
    }
}

/// The first page of a swap device (`union swap_header` of linux/swap.h).
fn header(pages: u64, page_bytes: u64) -> io::Result<Vec<u8>> {
    let too = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("too {what}"));
    if pages < SMALLEST_PAGES {
        return Err(too("small"));
    }
    let last = u32::try_from(pages - 1).map_err(|_| too("large"))?;
    let size = usize::try_from(page_bytes).map_err(|_| too("large"))?;
    let mut header = vec![0; size];
    for (at, value) in [(0, VERSION), (4, last), (8, 0)] {
        let from = FIELDS_OFFSET + at;
        header[from..from + 4].copy_from_slice(&value.to_ne_bytes());
    }
    header[size - MARK.len()..].copy_from_slice(MARK);
    Ok(header)
}

/// A swap file must have no holes.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(|_| io::Error::from(Errno::EFBIG))?;
    posix_fallocate(file, 0, bytes).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_the_kernel_reads() {
        let header = header(256, 4096).unwrap();
        assert_eq!(header.len(), 4096);
        assert_eq!(&header[4086..], MARK);
        let field = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!([field(1024), field(1028), field(1032)], [1, 255, 0]);
        assert!(header[1036..4086].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_file_that_cannot_be_is_refused() {
        assert!(header(9, 4096).is_err());
        assert!(header(u64::from(u32::MAX) + 2, 4096).is_err());
        let folder = Path::new("/nonexistent");
        let message = SwapFile::on(&Tree::host(), folder, 1 << 20).unwrap_err();
        assert!(message.contains("No such file"), "{message}");
    }

    #[test]
    fn only_files_of_dead_agents_go() {
        let root = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self/ns/pid")).unwrap();
        let tree = Tree::at(root.path());
        let own = owner::pid_namespace(&tree).unwrap();
        let dead = format!("vtax-8-500-{own}.swap");
        let kept = ["other.swap".to_owned(), format!("vtax-8-500-{own}")];
        for name in kept.iter().chain([&dead]) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(sweep(&tree, folder.path()), 1);
        assert_eq!(Tree::at(folder.path()).names("/"), kept);
    }
}
