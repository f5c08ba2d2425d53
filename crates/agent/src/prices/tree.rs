//! Files that were there before: those of the system, which programs read most.
//!
//! A guest may see them on another file system than the one it writes to, as through 9p beneath an
//! overlay. Every environment with this host's files finds the same ones, in the same order.

use std::ffi::{CStr, CString};
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vtax_sys::clock::monotonic_ns;

/// Programs load libraries, modules and data from here.
const TOP: &str = "/usr/lib";
/// Three times what gVisor keeps of one mount: its cache has 1,000 directory entries.
const FILES: usize = 3000;
/// In a slow guest at least as many files and folders are found, whatever the time.
const FEWEST_FILES: usize = 64;
const FEWEST_FOLDERS: usize = 6;
/// A file from this size on has pages enough for each pattern.
pub const LARGE_BYTES: usize = 1 << 20;

/// Some files and folders of the system.
#[derive(Debug)]
pub struct Tree {
    /// Regular files, at most `FILES`.
    files: Vec<CString>,
    /// The folders that have them, with the number of their entries, the smallest first.
    folders: Vec<(usize, PathBuf)>,
}

impl Tree {
    /// Walk through `/usr/lib`, each folder in the order of its names, until there are files enough
    /// or the time is over and there are a few.
    ///
    /// Fails where there are fewer files than one can take in turn.
    pub fn look(time: Duration) -> io::Result<Self> {
        let mut found = Self {
            files: Vec::new(),
            folders: Vec::new(),
        };
        found.walk(Path::new(TOP), Instant::now() + time);
        found.folders.sort();
        if found.files.len() < 3 || found.folders.len() < 3 {
            return Err(io::Error::other("the system has no files below /usr/lib"));
        }
        Ok(found)
    }

    /// What cannot be read is not one of them.
    fn walk(&mut self, folder: &Path, end: Instant) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        let mut entries: Vec<DirEntry> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(DirEntry::file_name);
        self.folders.push((entries.len(), folder.to_owned()));
        for entry in entries {
            let few = self.files.len() < FEWEST_FILES || self.folders.len() < FEWEST_FOLDERS;
            if self.files.len() >= FILES || (!few && Instant::now() > end) {
                return;
            }
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.walk(&path, end),
                Ok(kind) if kind.is_file() => {
                    self.files.extend(CString::new(path.as_os_str().as_bytes()));
                }
                _ => {}
            }
        }
    }

    /// All files in turn, for ever, from anywhere on: other files than in an earlier round, which
    /// a cache may still have.
    pub fn in_turn(&self) -> impl Iterator<Item = &CStr> {
        let first = usize::try_from(monotonic_ns()).unwrap_or(0) % self.files.len();
        let turned = self.files.iter().cycle().skip(first);
        turned.map(CString::as_c_str)
    }

    /// One of the files.
    pub fn file(&self) -> &CStr {
        &self.files[self.files.len() / 2]
    }

    /// The folders of the first, second or third third by the number of their entries.
    pub fn folders(&self, third: usize) -> impl Iterator<Item = &Path> {
        let count = self.folders.len();
        let range = count * third / 3..count * (third + 1) / 3;
        self.folders[range].iter().map(|(_, path)| path.as_path())
    }
}

/// A file of the system of at least `LARGE_BYTES`: the C library, or else this program.
pub fn large() -> io::Result<File> {
    let libraries = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/aarch64-linux-gnu/libc.so.6",
        "/usr/lib64/libc.so.6",
        "/usr/lib/libc.so.6",
        "/proc/self/exe",
    ]; // fmt: skip
    let opened = libraries.iter().filter_map(|path| File::open(path).ok());
    let mut large = opened.filter(|file| {
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        usize::try_from(bytes).is_ok_and(|bytes| bytes >= LARGE_BYTES)
    });
    large
        .next()
        .ok_or_else(|| io::Error::other("no file of the system has 1 MiB"))
}
