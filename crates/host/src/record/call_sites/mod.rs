//! Where in the programs system calls are made: `call-sites.folded` (docs/record.md).
//!
//! The programs unwind each stack and count it (`sources/calls/sites.bpf.c`). Unwinding needs rows
//! that are made here ([`unwind`]): before the command begins for its own file and the C library, later
//! for each file in which code was seen. At the end the offsets get names ([`names`]).

mod layout;
mod names;
mod unwind;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{Map, MapCore, MapFlags};
use serde::Serialize;
use vtax_sys::calls::memory::Mapping;
use vtax_sys::terminal::Error;
use vtax_sys::tree::field;

use crate::record::difference::Location;
use crate::record::files::Folder;
use crate::record::plan::Columns;
use crate::record::program::Programs;
use layout::{MappedFile, Site, UNWIND_ROWS};

/// How often files that were seen first get their rows.
pub const PERIOD: Duration = Duration::from_millis(10);
const FILE: &str = "call-sites.folded";
/// A script may name a script as its interpreter (`BINPRM_MAX_RECURSION` of Linux is 4).
const MOST_SCRIPTS: usize = 4;
const MOST_SCRIPT_BYTES: u64 = 256;
const MOST_ANCESTORS: usize = 16;

/// What was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Calls whose stack is in the file.
    pub calls: u64,
    /// Calls that found no room for their stack.
    pub lost: u64,
    /// Different stacks.
    pub stacks: usize,
}

/// The files in which the programs saw code.
pub struct CallSites {
    rows: Mapping,
    used: usize,
    /// Keys of files that have their rows, or cannot have them.
    looked_at: BTreeSet<Vec<u8>>,
    /// How many files the programs had seen when they were looked at last.
    seen: u64,
}

impl CallSites {
    /// Make the rows of what a command will surely run.
    ///
    /// Fails when a map is absent or cannot be used.
    pub fn begin(programs: &Programs, argv: &[OsString]) -> Result<Self, Error> {
        let rows = Mapping::new(map(programs, "site_unwind")?, UNWIND_ROWS, true)
            .map_err(|errno| failed(errno.desc()))?;
        let mut sites = Self {
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
            if sites.looked_at.contains(&key) {
                continue;
            }
            sites.seen += 1;
            let file = MappedFile::new(sites.seen, &path);
            sites.add(&files, key, file, Some(&path))?;
        }
        let state = map(programs, "site_state")?;
        let value = layout::state(sites.seen, 0);
        state
            .update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(failed)?;
        Ok(sites)
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

/// Write the stacks with names.
///
/// Fails when a map is absent or cannot be read, or the file cannot be written.
pub fn write(programs: &Programs, columns: &Columns, folder: &Folder) -> Result<Counted, Error> {
    let mut files = BTreeMap::new();
    let known = map(programs, "site_files")?;
    for key in known.keys() {
        let value = known.lookup(&key, MapFlags::ANY).map_err(failed)?;
        if let Some(file) = value.as_deref().and_then(MappedFile::read) {
            let path = file.find(layout::inode(&key));
            files.insert(file.number(), (file.path(), path));
        }
    }
    let mut stacks = Vec::new();
    let counts = map(programs, "site_counts")?;
    for key in counts.keys() {
        let value = counts.lookup(&key, MapFlags::ANY).map_err(failed)?;
        if let (Some(site), Some(count)) = (Site::read(&key), value.and_then(layout::count)) {
            stacks.push((site, count));
        }
    }
    let names = names::of(&stacks, &files);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (site, count) in &stacks {
        *lines
            .entry(names::fold(site, class(columns, site), &names))
            .or_default() += count;
    }
    let text = lines
        .iter()
        .map(|(stack, count)| format!("{stack} {count}\n"));
    folder.write(FILE, text.collect::<String>().as_bytes())?;
    let (_, lost) = state(programs)?;
    Ok(Counted {
        calls: lines.values().sum(),
        lost,
        stacks: lines.len(),
    })
}

/// The class of a call by the slot in which it is counted.
fn class<'a>(columns: &'a Columns, site: &Site) -> &'a str {
    let mut named = columns.events.iter().zip(&columns.locations);
    let found = named.find(|(_, location)| **location == Location::Counted(site.slot));
    let name = found.map_or("", |(event, _)| event.name.as_str());
    name.strip_prefix("calls.").unwrap_or(name)
}

/// Files and lost calls so far.
fn state(programs: &Programs) -> Result<(u64, u64), Error> {
    let found = map(programs, "site_state")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
    let found = found.map_err(failed)?.unwrap_or_default();
    layout::read_state(&found).ok_or_else(|| failed("a map is absent"))
}

fn map<'a>(programs: &'a Programs, name: &str) -> Result<Map<'a>, Error> {
    programs
        .map(name)
        .ok_or_else(|| failed(format!("the map {name} is absent")))
}

fn failed(reason: impl ToString) -> Error {
    Error::failure("call sites", reason, "leave out --call-sites")
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
