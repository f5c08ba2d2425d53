//! The folder of journals.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use vtax_cli::Error;

/// Where journals are, unless a caller says otherwise: gone with the affinities at a restart.
pub const STATE: &str = "/run/vtax/place";

/// Make the folder, for its owner alone; those above it are for all.
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

/// Make the folder, and keep others out until this is dropped: `apply` and `undo` take turns.
///
/// Fails when it cannot be made or locked.
pub fn lock(folder: &Path) -> Result<Flock<File>, Error> {
    make(folder)?;
    let file = File::open(folder).map_err(|error| failed(folder, &error))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| failed(folder, &io::Error::from(errno)))
}

/// Have what was linked or removed in the folder on disk.
///
/// Fails with the error of the system call.
pub fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// An error of a file of the folder.
pub fn failed(path: &Path, error: &io::Error) -> Error {
    Error::input_output(&path.display().to_string(), error, "run it as root")
}
