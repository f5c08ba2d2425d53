//! Counters that applications register (`vtax_counters.h`, `vtax.counters`).
//!
//! Each process has its own page, `NAME.page` in one folder, and holds a lock on it while it lives.
//! The process adds to the values in the page itself, so that an addition is one instruction. The
//! collector adds up all processes. It removes the page of a process that has ended after reading
//! the last values.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::{Reader, is_name};
use crate::calls::descriptors;

/// Where applications register unless `VTAX_APP_DIR` says otherwise.
pub const FOLDER: &str = "/run/vtax/app";
/// The prefix of the names of applications' counters.
pub const LAYER: &str = "app.";
/// The most pages; bounds what other users can make a collector do.
const PAGES: usize = 256;
/// The most names.
const NAMES: usize = 1024;

/// Adds up the counters of all processes.
#[derive(Debug)]
pub struct Collector {
    folder: PathBuf,
    pages: BTreeMap<OsString, Page>,
    sums: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Page {
    reader: Reader,
    counted: BTreeMap<String, u64>,
}

/// The folder that the environment names, or the usual one.
pub fn folder() -> PathBuf {
    std::env::var_os("VTAX_APP_DIR").map_or_else(|| FOLDER.into(), PathBuf::from)
}

/// Make the folder in which applications register; without the folder they do not.
///
/// Every user may register, as in `/tmp`: the collector distrusts pages ([`Reader`]).
///
/// Fails with the error of the file or descriptor.
pub fn open_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))
}

impl Collector {
    /// Begin with the pages that are there; those of processes that ended before are removed.
    ///
    /// Fails with the error of the file or descriptor.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        open_folder(folder)?;
        let mut collector = Self {
            folder: folder.to_owned(),
            pages: BTreeMap::new(),
            sums: BTreeMap::new(),
        };
        for name in collector.listed()? {
            let path = collector.folder.join(&name);
            if Reader::open(&path).is_ok_and(|reader| abandoned(&reader)) {
                let _ = fs::remove_file(path);
            }
        }
        collector.collect()?;
        Ok(collector)
    }

    /// The sums over all processes since the start, including what processes that ran at the start
    /// had counted before. The sums never fall.
    ///
    /// Fails with the error of the file or descriptor.
    pub fn collect(&mut self) -> io::Result<&BTreeMap<String, u64>> {
        for name in self.listed()? {
            if self.pages.len() < PAGES && !self.pages.contains_key(&name) {
                // A file that is not a page belongs to something else.
                if let Ok(reader) = Reader::open(&self.folder.join(&name)) {
                    let counted = BTreeMap::new();
                    self.pages.insert(name, Page { reader, counted });
                }
            }
        }
        let Self {
            folder,
            pages,
            sums,
        } = self;
        pages.retain(|name, page| {
            // Checked before the values are read: a process that has ended adds no more.
            let ended = abandoned(&page.reader);
            page.add_to(sums);
            if ended {
                let _ = fs::remove_file(folder.join(name));
            }
            !ended
        });
        Ok(sums)
    }

    fn listed(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            if name.as_encoded_bytes().ends_with(b".page") {
                names.push(name);
            }
        }
        Ok(names)
    }
}

impl Page {
    fn add_to(&mut self, sums: &mut BTreeMap<String, u64>) {
        // The list of names grows when the program registers another counter.
        if self.reader.sample() == Ok(None) && self.reader.learn().is_err() {
            return;
        }
        let Ok(Some(sample)) = self.reader.sample() else {
            return;
        };
        for (name, value) in self.reader.names().iter().zip(sample.values) {
            if !name.starts_with(LAYER) || (sums.len() >= NAMES && !sums.contains_key(name)) {
                continue;
            }
            let before = self.counted.insert(name.clone(), value).unwrap_or(0);
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(value.saturating_sub(before));
        }
    }
}

/// Has the process that made the page ended? It holds a lock on the file while it lives.
fn abandoned(reader: &Reader) -> bool {
    descriptors::try_lock(reader) != Err(Errno::EWOULDBLOCK)
}

/// The names of a list such as `requests,errors`, sorted, each once; `None` for `all`.
///
/// # Errors
/// The reason when one of them is not a name.
pub fn whole_names(text: &str) -> Result<Option<Vec<String>>, String> {
    if text == "all" {
        return Ok(None);
    }
    let name =
        |name| whole_name(name).ok_or_else(|| format!("{name:?} is not a name of a counter"));
    let names: BTreeSet<String> = text.split(',').map(name).collect::<Result<_, _>>()?;
    Ok(Some(names.into_iter().collect()))
}

/// The counter's whole name for what a user calls it.
fn whole_name(name: &str) -> Option<String> {
    let name = if name.starts_with(LAYER) {
        name.to_owned()
    } else {
        format!("{LAYER}{name}")
    };
    is_name(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::Publisher;
    use super::*;
    use nix::fcntl::{Flock, FlockArg};

    /// A page that a process holds, as the header `vtax_counters.h` makes it.
    fn held(path: &Path, names: &[&str]) -> (Publisher, Flock<fs::File>) {
        let publisher = Publisher::create(path, names).unwrap();
        let file = fs::File::open(path).unwrap();
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap();
        (publisher, lock)
    }

    #[test]
    fn processes_are_added_up_and_their_last_values_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // The page of a process that ended before: neither counted nor kept.
        Publisher::create(&at("0.page"), &["app.old"])
            .unwrap()
            .publish(&[9])
            .unwrap();
        let (mut one, lock) = held(&at("1.page"), &["app.x"]);
        one.publish(&[5]).unwrap();
        let mut collector = Collector::begin(folder.path()).unwrap();
        assert!(!at("0.page").exists());
        let (mut two, _lock) = held(&at("2.page"), &["app.x", "app.y"]);
        two.publish(&[10, 1]).unwrap();
        let expected = |x, y| BTreeMap::from([("app.x".to_owned(), x), ("app.y".to_owned(), y)]);
        assert_eq!(*collector.collect().unwrap(), expected(15, 1));
        one.publish(&[7]).unwrap();
        drop(lock);
        assert_eq!(*collector.collect().unwrap(), expected(17, 1));
        assert!(!at("1.page").exists() && at("2.page").exists());
        assert_eq!(*collector.collect().unwrap(), expected(17, 1));
    }

    #[test]
    fn other_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note.page");
        fs::write(&path, "no page").unwrap();
        let (mut page, _lock) = held(&folder.path().join("1.page"), &["guest.x", "app.z"]);
        page.publish(&[1, 2]).unwrap();
        let mut collector = Collector::begin(folder.path()).unwrap();
        let sums = collector.collect().unwrap();
        assert_eq!(*sums, BTreeMap::from([("app.z".to_owned(), 2)]));
        assert!(path.exists());
    }

    #[test]
    fn names_may_be_given_without_their_layer() {
        assert_eq!(whole_name("requests").as_deref(), Some("app.requests"));
        assert_eq!(whole_name("app.a.b").as_deref(), Some("app.a.b"));
        assert_eq!(whole_name("Requests"), None);
    }
}
