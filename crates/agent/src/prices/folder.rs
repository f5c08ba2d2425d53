//! The folder of the files that operations work on.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A path with this many components, and one more for a file.
const DEEP: &str = "a/path/that/is/long/and/deep";

/// A new folder, which is removed with all that is in it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Make it in `parent`.
    pub fn make(parent: &Path) -> io::Result<Self> {
        let template = parent.canonicalize()?.join("vtax-prices-XXXXXX");
        Ok(Self(nix::unistd::mkdtemp(&template)?))
    }

    /// Make it in /var/tmp, or where that is not possible, in the current folder.
    pub fn usual() -> io::Result<Self> {
        Self::make(Path::new("/var/tmp")).or_else(|_| Self::make(Path::new(".")))
    }

    /// The path of something in it.
    pub fn path(&self, name: &str) -> io::Result<CString> {
        Ok(CString::new(self.0.join(name).into_os_string().into_vec())?)
    }

    /// The paths of `count` more things of one kind; `made` counts them.
    pub fn more(&self, kind: &str, made: &mut u64, count: u64) -> io::Result<Vec<CString>> {
        let numbers = *made..*made + count;
        *made += count;
        numbers
            .map(|number| self.path(&format!("{kind}-{number}")))
            .collect()
    }

    /// A file of this length for reading and writing, and what is in it is cached.
    pub fn file(&self, bytes: usize) -> io::Result<File> {
        let path = self.0.join("file");
        fs::write(&path, vec![1; bytes])?;
        File::options().read(true).write(true).open(path)
    }

    /// The path of an existing file below several folders.
    pub fn deep(&self) -> io::Result<CString> {
        fs::create_dir_all(self.0.join(DEEP))?;
        let name = format!("{DEEP}/file");
        fs::write(self.0.join(&name), [])?;
        self.path(&name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
