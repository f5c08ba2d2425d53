//! What the programs need to follow stacks: rows of each file of code ([`unwind`]), before the command
//! begins for its own file and the C library, later for each file in which code was seen.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{Map, MapCore, MapFlags};
use vtax_sys::calls::memory::Mapping;
use vtax_sys::terminal::Error;
use vtax_sys::tree::field;

use super::layout::{self, MappedFile, UNWIND_ROWS};
use super::{failed, map, unwind};
use crate::record::program::Programs;

/// How often files that were seen first get their rows.
pub const PERIOD: Duration = Duration::from_millis(10);
/// A script may name a script as its interpreter (`BINPRM_MAX_RECURSION` of Linux is 4).
const MOST_SCRIPTS: usize = 4;
const MOST_SCRIPT_BYTES: u64 = 256;
const MOST_ANCESTORS: usize = 16;

/// The files in which the programs saw code.
pub struct Unwinder {
    rows: Mapping,
    used: usize,
    /// Keys of files that have their rows, or cannot have them.
    looked_at: BTreeSet<Vec<u8>>,
    /// How many files the programs had seen when they were looked at last.
    seen: u64,
}

impl Unwinder {
    /// Make the rows of what a command will surely run.
    ///
    /// Fails when a map is absent or cannot be used.
    pub fn begin(programs: &Programs, argv: &[OsString]) -> Result<Self, Error> {
        let rows = Mapping::new(map(programs, "site_unwind")?, UNWIND_ROWS, true)
            .map_err(|errno| failed(errno.desc()))?;
        let mut unwinder = Self {
            rows,
            used: 0,
            looked_at: BTreeSet::new(),
            seen: 0,
        };
        let files = map(programs, "site_files")?;
        for path in c_library().into_iter().chain(programs_of(argv)) {
            let Ok(found) = fs::metadata(&path) else {
                continue;
            };
            let key = layout::file_key(found.dev(), found.ino());
            if unwinder.looked_at.contains(&key) {
                continue;
            }
            unwinder.seen += 1;
            let file = MappedFile::new(unwinder.seen, &path);
            unwinder.add(&files, key, file, Some(&path))?;
        }
        let state = map(programs, "site_state")?;
        let value = layout::state(unwinder.seen, 0);
        state
            .update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(failed)?;
        Ok(unwinder)
    }

    /// Make the rows of files that were seen since.
    ///
    /// Fails when a map is absent or cannot be used.
    pub fn learn(&mut self, programs: &Programs) -> Result<(), Error> {
        let (seen, _) = state(programs)?;
        if seen == self.seen {
            return Ok(());
        }
        let files = map(programs, "site_files")?;
        let fresh: Vec<Vec<u8>> = files
            .keys()
            .filter(|key| !self.looked_at.contains(key))
            .collect();
        for key in fresh {
            let value = files.lookup(&key, MapFlags::ANY).map_err(failed)?;
            if let Some(file) = value.as_deref().and_then(MappedFile::read) {
                let path = file.find(layout::inode(&key));
                self.add(&files, key, file, path.as_deref())?;
            }
        }
        self.seen = seen;
        Ok(())
    }

    fn add(
        &mut self,
        files: &Map<'_>,
        key: Vec<u8>,
        mut file: MappedFile,
        path: Option<&Path>,
    ) -> Result<(), Error> {
        let mut rows = path.map(unwind::rows).unwrap_or_default();
        rows.truncate(UNWIND_ROWS - self.used);
        for (at, row) in rows.iter().enumerate() {
            self.rows.store(self.used + at, *row, Ordering::Relaxed);
        }
        file.put_rows(self.used, rows.len());
        self.used += rows.len();
        files
            .update(&key, file.bytes(), MapFlags::ANY)
            .map_err(failed)?;
        self.looked_at.insert(key);
        Ok(())
    }
}

/// Files and lost calls so far.
pub fn state(programs: &Programs) -> Result<(u64, u64), Error> {
    let found = map(programs, "site_state")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
    let found = found.map_err(failed)?.unwrap_or_default();
    layout::read_state(&found).ok_or_else(|| failed("a map is absent"))
}

/// The C library and its loader, as this process or one that started it has them: this one may be
/// linked with it statically.
fn c_library() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut process = "self".to_owned();
    for _ in 0..MOST_ANCESTORS {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let executable = maps.lines().filter(|line| line.contains(" r-xp "));
        let paths = executable.filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
        found.extend(paths.map(PathBuf::from).filter(|path| is_c_library(path)));
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        match field(&status, "PPid") {
            Some(parent) => parent.clone_into(&mut process),
            None => break,
        }
    }
    found
}

fn is_c_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("libc.") || name.starts_with("ld-")
}

/// The file of a command, and those of a script's interpreters.
fn programs_of(argv: &[OsString]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = argv.first().and_then(on_path).into_iter().collect();
    for at in 0..MOST_SCRIPTS {
        let Some(line) = found.get(at).and_then(|path| first_line(path)) else {
            break;
        };
        let words = line.strip_prefix("#!").unwrap_or("").split_whitespace();
        found.extend(words.filter_map(|word| on_path(&word.into())));
    }
    found
}

fn first_line(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MOST_SCRIPT_BYTES).read_to_end(&mut start).ok()?;
    let line = start.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

/// Where a command is.
fn on_path(name: &OsString) -> Option<PathBuf> {
    if name.to_string_lossy().contains('/') {
        return fs::canonicalize(name).ok();
    }
    let folders = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(name));
    places.find_map(|place| fs::canonicalize(place).ok().filter(|place| place.is_file()))
}
