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
    let small = path.metadata().is_ok_and(|found| found.len() <= MOST_BYTES);
    let bytes = small.then(|| fs::read(path).ok()).flatten();
    bytes.and_then(|bytes| of_file(&bytes)).unwrap_or_default()
}

fn of_file(bytes: &[u8]) -> Option<Vec<u64>> {
    let file = object::File::parse(bytes).ok()?;
    let section = file.section_by_name(".eh_frame")?;
    let data = section.data().ok()?;
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = file.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    let mut found = Vec::new();
    // What cannot be read is left out.
    let _ = collect(&EhFrame::new(data, LittleEndian), &bases, &mut found);
    let segments: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    let offset = |address: u64| {
        let (start, _, offset) = segments
            .iter()
            .find(|(start, size, _)| (*start..start.saturating_add(*size)).contains(&address))?;
        u32::try_from(address - start + offset).ok()
    };
    // Where one function ends and another begins, what begins holds: it is larger than nothing.
    found.sort_unstable();
    let placed = found
        .iter()
        .filter_map(|(address, row)| Some(u64::from(offset(*address)?) | u64::from(*row) << 32));
    Some(placed.collect())
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
    fn what_is_no_program_has_no_rows() {
        assert_eq!(rows(Path::new("/proc/self/status")), [0; 0]);
        assert_eq!(rows(Path::new("/")), [0; 0]);
        assert_eq!(of_file(b"\x7fELF"), None);
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
