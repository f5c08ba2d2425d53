//! Stacks of programs and the kernel: where system calls are made ([`calls`]), and where the time goes
//! ([`samples`]) (docs/record.md).
//!
//! The programs follow the stacks (`bpf/stacks.h`) by rows that are made here ([`unwinder`]). In the end
//! the offsets get names ([`names`]).

pub mod calls;
pub mod layout;
mod names;
pub mod samples;
mod unwind;
pub mod unwinder;

use std::fmt::Write as _;

use libbpf_rs::{Map, MapCore, MapFlags};

use crate::record::files::Folder;
use crate::record::program::Programs;
use layout::MappedFile;
use vtax_sys::terminal::Error;

/// The files in which code was seen, and where they are now.
fn files(programs: &Programs) -> Result<names::Files, Error> {
    let mut files = names::Files::new();
    let known = map(programs, "site_files")?;
    for key in known.keys() {
        let value = known.lookup(&key, MapFlags::ANY).map_err(failed)?;
        if let Some(file) = value.as_deref().and_then(MappedFile::read) {
            let path = file.find(layout::inode(&key));
            files.insert(file.number(), (file.path(), path));
        }
    }
    Ok(files)
}

/// Write folded stacks.
fn write<'a>(
    lines: impl Iterator<Item = (&'a String, u64)>,
    folder: &Folder,
    file: &str,
) -> Result<(), Error> {
    let mut text = String::new();
    for (stack, count) in lines {
        let _ = writeln!(text, "{stack} {count}");
    }
    folder.write(file, text.as_bytes())
}

fn map<'a>(programs: &'a Programs, name: &str) -> Result<Map<'a>, Error> {
    programs
        .map(name)
        .ok_or_else(|| failed(format!("the map {name} is absent")))
}

fn failed(reason: impl ToString) -> Error {
    Error::failure("stacks", reason, "leave out --stacks and --call-sites")
}
