use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;

use crate::calls::memory::page_bytes;
use crate::calls::swap;
use crate::gated::c_string;
use crate::swap::Refused;
use crate::swap::header::{Uuid, header};

/// The extension of the file's name in the folder.
pub const EXTENSION: &str = "swap";

/// A swap file in use. Dropping it turns it off and removes it.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
}

impl SwapFile {
    /// Make a file of `bytes` in `folder` and swap to it.
    ///
    /// Fails when the file system is full or cannot hold one.
    pub fn on(folder: &Path, name: &str, bytes: u64) -> Result<Self, Refused> {
        let path = folder.join(format!("{name}.{EXTENSION}"));
        let this = Self { path };
        // From here on, dropping removes it.
        let thing = format!("swap file {}", this.path.display());
        make(&this.path, bytes).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::StorageFull => "free space there",
                _ => "use a folder that can be written",
            };
            Refused::new(&thing, &error, remedy)
        })?;
        let on = c_string(&this.path).and_then(|name| swap::on(&name));
        on.map_err(|errno| {
            let remedy = match errno {
                Errno::EINVAL => "its file system cannot hold one: use a folder on ext4 or xfs",
                _ => "use a folder on ext4 or xfs",
            };
            Refused::new(&thing, &errno.into(), remedy)
        })?;
        Ok(this)
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let page = page_bytes();
    let header = header(bytes / page, page, Uuid::default())?;
    allocate(&file, bytes / page * page)?;
    file.write_all(&header)?;
    file.sync_all()
}

/// Turn the swap file off and remove it. False when it is still in use: the file then stays, so
/// that a later sweep finds it.
pub fn remove(path: &Path) -> bool {
    let Ok(name) = c_string(path) else {
        return false;
    };
    match swap::off(&name) {
        // EINVAL: it was not on; ENOENT: it was not made either. EPERM: a user who may not turn it
        // off has turned none on.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::EPERM) => fs::remove_file(path).is_ok(),
        Err(_) => false,
    }
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
    fn a_file_that_cannot_be_made_is_refused() {
        let refused = SwapFile::on(Path::new("/nonexistent"), "vtax-1", 1 << 20).unwrap_err();
        assert!(refused.reason.contains("No such file"), "{refused:?}");
    }
}
