//! What is made for one command alone: its home and its standard input.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::launch::make_folder;

const HOME: &str = "home";

/// A home folder for one command, removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Home(PathBuf);

impl Home {
    /// Make an empty home in the folder of the command's results.
    ///
    /// Fails when something under its name cannot be removed, or when the folder cannot be made.
    pub fn make(results: &Path) -> io::Result<Self> {
        let path = results.join(HOME);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => make_folder(&path)?,
        }
        Ok(Self(path))
    }

    /// The value of `HOME`.
    pub fn path(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The command may have taken its permissions away; the run's folder is removed later.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The standard input: a file in the folder of results, or nothing.
///
/// Fails when there is no regular file of that name.
pub fn input(results: &Path, name: Option<&str>) -> io::Result<OwnedFd> {
    let Some(name) = name else {
        return Ok(File::open("/dev/null")?.into());
    };
    let file = OpenOptions::new()
        .read(true)
        // NONBLOCK: opening a pipe must not wait for its writer.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(results.join(name))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_home_is_empty_and_leaves_nothing() {
        let results = tempfile::tempdir().unwrap();
        let own = results.path().join(HOME);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("old"), "").unwrap();
        let home = Home::make(results.path()).unwrap();
        assert_eq!(home.path(), own);
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
        fs::create_dir_all(own.join(".cache/deep")).unwrap();
        drop(home);
        assert_eq!(fs::read_dir(results.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_input_is_a_regular_file_or_nothing() {
        let results = tempfile::tempdir().unwrap();
        fs::write(results.path().join("stdin"), "3\n").unwrap();
        let read = |name| {
            let mut text = String::new();
            File::from(input(results.path(), name)?).read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        assert_eq!(read(Some("stdin")).unwrap(), "3\n");
        assert_eq!(read(None).unwrap(), "");
        assert!(read(Some(".")).is_err());
        assert!(read(Some("none")).is_err());
    }
}
