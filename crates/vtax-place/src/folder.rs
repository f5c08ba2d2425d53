//! The folder of journals.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use vtax_cli::Error;

/// The default folder of journals; a restart removes it together with the affinities.
pub const STATE: &str = "/run/vtax/place";

/// Make the folder, accessible only to its owner; its parents are accessible to all.
///
/// Fails when it cannot be made.
pub fn make(folder: &Path) -> Result<(), Error> {
    let above = folder.parent().map_or(Ok(()), fs::create_dir_all);
    let made = above.and_then(|()| DirBuilder::new().mode(0o700).create(folder));
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(folder, &error)),
        _ => Ok(()),
    }
}

/// Make the folder, and lock it until this is dropped: `apply` and `undo` take turns.
///
/// Fails when it cannot be made or locked.
pub fn lock(folder: &Path) -> Result<Flock<File>, Error> {
    make(folder)?;
    let file = File::open(folder).map_err(|error| failed(folder, &error))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| failed(folder, &io::Error::from(errno)))
}

/// Sync the folder, so that links and removals in it are on disk.
///
/// Fails with the error of the system call.
pub fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The error for a file in the folder.
pub fn failed(path: &Path, error: &io::Error) -> Error {
    Error::input_output(&path.display().to_string(), error, "run it as root")
}
