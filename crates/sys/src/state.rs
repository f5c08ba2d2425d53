//! Folders of state and the files in them: each file is whole or not there, also after a crash.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// Make a folder for its owner alone; those above it are for all. One that is there is left as it is.
///
/// Fails when it cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    folder.parent().map_or(Ok(()), fs::create_dir_all)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Make a folder, wait until nobody else has it, and keep others out until this is dropped.
///
/// Fails when it cannot be made or locked.
pub fn hold_folder(folder: &Path) -> io::Result<Flock<File>> {
    lock(folder, FlockArg::LockExclusive)
}

/// The same without waiting.
///
/// Fails with `WouldBlock` when somebody else has it.
pub fn try_hold_folder(folder: &Path) -> io::Result<Flock<File>> {
    lock(folder, FlockArg::LockExclusiveNonblock)
}

/// Whether somebody holds a folder; a file in it may be left by a program that was killed.
pub fn is_held(folder: &Path) -> bool {
    File::open(folder).is_ok_and(|file| Flock::lock(file, FlockArg::LockSharedNonblock).is_err())
}

fn lock(folder: &Path, how: FlockArg) -> io::Result<Flock<File>> {
    make_folder(folder)?;
    Flock::lock(File::open(folder)?, how).map_err(|(_, errno)| errno.into())
}

/// Write a file that takes the place of an older one, with these permissions.
///
/// `write` fills it. Whoever opens the path meanwhile sees the old one. Only one process at a time
/// may write it. Fails when it cannot be written: then the old one stays.
pub fn replace(
    path: &Path,
    permissions: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let draft = draft(path, permissions, write)?;
    fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// The same, for the owner alone; it is on disk when this returns.
///
/// Fails when it cannot be written: then the old one stays.
pub fn replace_on_disk(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    replace(path, 0o600, |file| {
        write(file)?;
        file.sync_all()
    })?;
    sync_parent(path)
}

/// Write a file for the owner alone that is not there yet, on disk when this returns; false when
/// there is one, which stays.
///
/// Fails when it cannot be written.
pub fn create_on_disk(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<bool> {
    let draft = draft(path, 0o600, |file| {
        write(file)?;
        file.sync_all()
    })?;
    let linked = fs::hard_link(&draft, path);
    let _ = fs::remove_file(&draft);
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Remove a file, for good when this returns. One that is not there is no error.
///
/// Fails when it cannot be removed.
pub fn remove_on_disk(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_parent(path),
    }
}

/// Read a file of at most `limit_bytes`; `None` when it is not there.
///
/// Fails when it cannot be read, is longer, or is not text.
pub fn read(path: &Path, limit_bytes: u64) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(limit_bytes + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit_bytes {
        let reason = format!("it is longer than {limit_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(Some(text))
}

/// The draft of a file, beside it; removed again when it cannot be written.
fn draft(
    path: &Path,
    permissions: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".draft");
    let draft = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let written = options.mode(permissions).open(&draft).and_then(|mut file| {
        write(&mut file)?;
        file.flush()
    });
    written
        .inspect_err(|_| drop(fs::remove_file(&draft)))
        .map(|()| draft.clone())
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn text(words: &str) -> impl FnOnce(&mut File) -> io::Result<()> {
        move |file| file.write_all(words.as_bytes())
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_folder_is_the_owners_and_held_by_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("above/state");
        assert!(!is_held(&folder));
        let held = hold_folder(&folder).unwrap();
        assert_eq!(
            folder.metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert!(is_held(&folder));
        let second = try_hold_folder(&folder).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert!(!is_held(&folder));
        drop(try_hold_folder(&folder).unwrap());
    }

    #[test]
    fn a_file_is_whole_or_the_old_one() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("it.json");
        assert_eq!(read(&path, 9).unwrap(), None);
        replace(&path, 0o644, text("one")).unwrap();
        replace_on_disk(&path, text("two")).unwrap();
        let half = |file: &mut File| {
            file.write_all(b"th")?;
            Err(io::Error::other("full"))
        };
        assert!(replace(&path, 0o600, half).is_err());
        assert!(create_on_disk(&root.path().join("other"), half).is_err());
        assert!(!create_on_disk(&path, text("three")).unwrap());
        assert_eq!(read(&path, 3).unwrap().as_deref(), Some("two"));
        assert!(read(&path, 2).is_err());
        assert_eq!(names(root.path()), ["it.json"]);
        remove_on_disk(&path).unwrap();
        remove_on_disk(&path).unwrap();
        assert!(create_on_disk(&path, text("three")).unwrap());
        assert_eq!(names(root.path()), ["it.json"]);
    }
}
