//! How to find a caller's registers from its callee's: rows of `.eh_frame`, for the programs.
//!
//! x86-64 only. A row is a word: the offset in the file from which on it holds, where the caller's
//! stack pointer was, where the frame pointer is saved (`struct unwind_row` of sites.bpf.c).

use std::fs;
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow, X86_64,
};
use object::{Object, ObjectSection, ObjectSegment};

use super::layout::UNWIND_ROWS;

/// Larger files are not read.
const MOST_BYTES: u64 = 1 << 29;
const BASE_SHIFT: u32 = 14;
const BASE_SP: u16 = 1;
const BASE_BP: u16 = 2;
/// There is no caller, or it cannot be told by a row.
const END: u32 = 3 << BASE_SHIFT;

/// A row's address and what holds from there on; 0: nothing is said of the code.
type Row = (u64, u32);

/// The rows of a file in the order of their offsets; empty where it has none.
pub fn rows(path: &Path) -> Vec<u64> {
    let bytes = read(path).unwrap_or_default();
    rows_of(&bytes).unwrap_or_default()
}

fn rows_of(bytes: &[u8]) -> Option<Vec<u64>> {
    let tables = Tables::find(bytes)?;
    let mut found = Vec::new();
    // What cannot be read is left out.
    let _ = collect(&tables.frames, &tables.bases, &mut found);
    // Where one function ends and another begins, what begins holds: it is larger than nothing.
    found.sort_unstable();
    let placed = found.iter().filter_map(|(address, row)| {
        Some(u64::from(tables.offset(*address)?) | u64::from(*row) << 32)
    });
    Some(placed.collect())
}

/// Where the functions of a file begin and end by its tables, in the order of their offsets.
pub fn functions(path: &Path) -> Vec<(u64, u64)> {
    let bytes = read(path).unwrap_or_default();
    let mut found = functions_of(&bytes).unwrap_or_default();
    found.sort_unstable();
    found
}

fn functions_of(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let tables = Tables::find(bytes)?;
    let mut entries = tables.frames.entries(&tables.bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next()
        && found.len() < UNWIND_ROWS
    {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(EhFrame::cie_from_offset)
            && let Some(start) = tables.offset(entry.initial_address())
        {
            let start = u64::from(start);
            found.push((start, start.saturating_add(entry.len())));
        }
    }
    Some(found)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let small = path.metadata().is_ok_and(|found| found.len() <= MOST_BYTES);
    small.then(|| fs::read(path).ok()).flatten()
}

/// A file's tables, and where its segments are.
struct Tables<'a> {
    frames: EhFrame<gimli::EndianSlice<'a, LittleEndian>>,
    bases: BaseAddresses,
    /// Address, size and offset in the file.
    segments: Vec<(u64, u64, u64)>,
}

impl<'a> Tables<'a> {
    fn find(bytes: &'a [u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let section = file.section_by_name(".eh_frame")?;
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let segments = file
            .segments()
            .map(|segment| (segment.address(), segment.size(), segment.file_range().0));
        Some(Self {
            frames: EhFrame::new(section.data().ok()?, LittleEndian),
            bases,
            segments: segments.collect(),
        })
    }

    fn offset(&self, address: u64) -> Option<u32> {
        let mut segments = self.segments.iter();
        let (start, _, offset) = segments
            .find(|(start, size, _)| (*start..start.saturating_add(*size)).contains(&address))?;
        u32::try_from(address - start + offset).ok()
    }
}

fn collect(
    frames: &EhFrame<gimli::EndianSlice<'_, LittleEndian>>,
    bases: &BaseAddresses,
    found: &mut Vec<Row>,
) -> gimli::Result<()> {
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(bases);
    while let Some(entry) = entries.next()?
        && found.len() < UNWIND_ROWS
    {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let mut table = entry.rows(frames, bases, &mut context)?;
        while let Ok(Some(row)) = table.next_row() {
            found.push((row.start_address(), packed(row)));
        }
        found.push((entry.end_address(), 0));
    }
    Ok(())
}

fn packed(row: &UnwindTableRow<usize>) -> u32 {
    match (row.cfa(), row.register(X86_64::RA)) {
        (CfaRule::RegisterAndOffset { register, offset }, Some(RegisterRule::Offset(-8))) => {
            pack(*register, *offset, row.register(X86_64::RBP)).unwrap_or(END)
        }
        _ => END,
    }
}

fn pack(register: Register, offset: i64, pointer: Option<RegisterRule<usize>>) -> Option<u32> {
    let base = match register {
        X86_64::RSP => BASE_SP,
        X86_64::RBP => BASE_BP,
        _ => return None,
    };
    let words = u16::try_from(offset / 8)
        .ok()
        .filter(|words| words >> BASE_SHIFT == 0)?;
    let saved = match pointer {
        Some(RegisterRule::Offset(at)) => i16::try_from(at / 8).ok()?,
        _ => 0,
    };
    let low = u32::from(base << BASE_SHIFT | words);
    Some(low | u32::from(saved.cast_unsigned()) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word of a row without its offset.
    fn row(base: u16, words: u16, saved: i16) -> u64 {
        let low = u64::from(base << BASE_SHIFT | words);
        low | u64::from(saved.cast_unsigned()) << 16
    }

    #[test]
    fn this_program_has_rows_in_the_order_of_their_offsets() {
        let rows = rows(&std::env::current_exe().unwrap());
        assert!(rows.is_sorted_by_key(|row| row & u64::from(u32::MAX)));
        // A function begins with its return address on top of the stack; many save rbp first.
        for usual in [row(BASE_SP, 1, 0), row(BASE_SP, 2, -2)] {
            assert!(rows.iter().any(|row| row >> 32 == usual), "{usual:#x}");
        }
    }

    #[test]
    fn this_function_has_a_place() {
        let functions = functions(&std::env::current_exe().unwrap());
        assert!(functions.len() > 100 && functions.is_sorted());
        assert!(functions.iter().all(|(start, end)| start < end));
    }

    #[test]
    fn what_is_no_program_has_no_rows() {
        assert_eq!(rows(Path::new("/proc/self/status")), [0; 0]);
        assert_eq!(rows(Path::new("/")), [0; 0]);
        assert_eq!(rows_of(b"\x7fELF"), None);
        assert_eq!(functions(Path::new("/")), []);
    }

    #[test]
    fn a_row_that_does_not_fit_is_none() {
        let saved = Some(RegisterRule::Offset(-16));
        assert_eq!(
            pack(X86_64::RBP, 16, saved.clone()).map(u64::from),
            Some(row(BASE_BP, 2, -2))
        );
        assert_eq!(pack(X86_64::RSP, 8 << 14, saved.clone()), None);
        assert_eq!(pack(X86_64::RSP, -8, saved.clone()), None);
        assert_eq!(pack(X86_64::RAX, 8, saved), None);
    }
}
