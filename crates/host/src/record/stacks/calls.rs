//! Where in the programs system calls are made: `call-sites.folded`. The programs count each call under
//! its stack (`sources/calls/sites.bpf.c`).

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use super::layout::{self, Site};
use super::{failed, map, names, unwinder};
use crate::record::difference::Location;
use crate::record::files::Folder;
use crate::record::plan::Columns;
use crate::record::program::Programs;
use vtax_sys::terminal::Error;

const FILE: &str = "call-sites.folded";

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

/// Write the calls by their stacks, with names.
///
/// Fails when a map is absent or cannot be read, or the file cannot be written.
pub fn write(programs: &Programs, columns: &Columns, folder: &Folder) -> Result<Counted, Error> {
    let mut stacks = Vec::new();
    let counts = map(programs, "site_counts")?;
    for key in counts.keys() {
        let value = counts.lookup(&key, MapFlags::ANY).map_err(failed)?;
        if let (Some(site), Some(count)) = (Site::read(&key), value.and_then(layout::count)) {
            stacks.push((site, count));
        }
    }
    let names = names::of(
        stacks.iter().map(|(site, _)| &site.stack),
        &super::files(programs)?,
    );
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (site, count) in &stacks {
        *lines
            .entry(names::fold(
                class(columns, site),
                &site.comm,
                &site.stack,
                &names,
            ))
            .or_default() += count;
    }
    super::write(
        lines.iter().map(|(line, calls)| (line, *calls)),
        folder,
        FILE,
    )?;
    let (_, lost) = unwinder::state(programs)?;
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
