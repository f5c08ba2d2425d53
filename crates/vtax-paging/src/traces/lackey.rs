//! The text of `valgrind --tool=lackey --trace-mem=yes`.
//!
//! ```text
//! I  0401ab70,3        an instruction of 3 bytes: counted, its fetch is not a reference
//!  L 04a27a48,4        a load of 4 bytes
//!  S 1fff000758,8      a store
//!  M 04a2a6f0,4        a modify: a load, then a store
//! ==26268== text       valgrind's own lines, also with -- or **: skipped
//! ```
//!
//! Addresses are hexadecimal, sizes decimal. An access that crosses a 4 KiB page is two references,
//! one on each side. A text without any `I` line does not say how many instructions ran and is
//! refused.

use crate::model::address::PAGE_SHIFT;

use crate::traces::block::{Block, Item, Reader};
use crate::traces::error::{Fault, Position, printable};
use crate::traces::input::{BUFFER_BYTES, Input};

/// The longest line in bytes: valgrind's own lines contain the traced command.
pub(crate) const LINE_LIMIT: usize = 16 * 1024;
/// The most lines in one block, so that instructions without references end it too.
const BLOCK_LINES: usize = 16 * 1024;
/// The largest access in bytes: no x86 instruction exceeds it, and it spans at most two pages.
const SIZE_LIMIT: u64 = 4096;
/// The most references of a line: a modify across two pages.
const REFERENCES_PER_LINE: usize = 4;

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Instruction,
    Load(Access),
    Store(Access),
    Modify(Access),
    Noise,
}

/// The bytes that an instruction touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    first: u64,
    last: u64,
}

/// A reader of lackey's text.
pub(crate) struct LackeyReader {
    input: Input,
    lines: u64,
    instructions: u64,
}

impl LackeyReader {
    /// A reader of the text in `input`.
    pub fn new(input: Input) -> Self {
        Self {
            input,
            lines: 0,
            instructions: 0,
        }
    }

    /// Parses the buffered lines into `block`; returns the bytes to consume and the number of lines
    /// in them.
    fn parse(text: &[u8], block: &mut Block) -> (usize, u64, Result<(), String>) {
        let (mut used, mut lines) = (0, 0);
        while lines < BLOCK_LINES as u64 && block.has_room(REFERENCES_PER_LINE) {
            let rest = &text[used..];
            let near = &rest[..rest.len().min(LINE_LIMIT + 1)];
            let Some(length) = near.iter().position(|&byte| byte == b'\n') else {
                break;
            };
            match parse_line(&rest[..length]) {
                Ok(line) => push(block, line),
                Err(reason) => return (used, lines, Err(reason)),
            }
            used += length + 1;
            lines += 1;
        }
        (used, lines, Ok(()))
    }

    /// The end of the text where no whole line is left.
    fn end(&self) -> Result<Item, Fault> {
        let position = self.position();
        let rest = self.input.buffered();
        match self.input.failure(position) {
            Some(fault) => Err(fault),
            None if rest.is_empty() => Ok(Item::End),
            None if rest.len() > LINE_LIMIT => Err(too_long(position)),
            None => Err(Fault::truncated(position, "the last line has no end")),
        }
    }

    fn check_counted(&self, block: &Block) -> Result<(), Fault> {
        if self.instructions == 0 && !block.references.is_empty() {
            let reason = "no I lines up to here, so the number of instructions is not known; keep the I lines that lackey writes";
            return Err(Fault::corrupt(self.position(), reason));
        }
        Ok(())
    }
}

impl Reader for LackeyReader {
    fn next(&mut self, block: &mut Block) -> Result<Item, Fault> {
        if self.input.buffered().len() <= LINE_LIMIT {
            self.input.fill(BUFFER_BYTES);
        }
        let text = self.input.buffered();
        let long = text.len() > LINE_LIMIT;
        let (used, lines, parsed) = Self::parse(text, block);
        self.input.consume(used);
        self.lines += lines;
        self.instructions += block.instructions;
        if lines == 0 {
            parsed.map_err(|reason| Fault::corrupt(self.position(), reason))?;
            return if long {
                Err(too_long(self.position()))
            } else {
                self.end()
            };
        }
        // A bad line after good ones comes again at the next call, as the first in its block.
        self.check_counted(block)?;
        Ok(Item::References)
    }

    fn position(&self) -> Position {
        Position::Line(self.lines + 1)
    }
}

fn too_long(position: Position) -> Fault {
    Fault::corrupt(position, format!("a line of more than {LINE_LIMIT} bytes"))
}

#[inline]
fn push(block: &mut Block, line: Line) {
    match line {
        Line::Instruction => block.instructions += 1,
        Line::Load(access) => push_access(block, access, false),
        Line::Store(access) => push_access(block, access, true),
        Line::Modify(access) => {
            push_access(block, access, false);
            push_access(block, access, true);
        }
        Line::Noise => {}
    }
}

#[inline]
fn push_access(block: &mut Block, access: Access, write: bool) {
    block.push(access.first, write);
    if access.first >> PAGE_SHIFT != access.last >> PAGE_SHIFT {
        block.push(access.last >> PAGE_SHIFT << PAGE_SHIFT, write);
    }
}

#[inline]
fn parse_line(line: &[u8]) -> Result<Line, String> {
    let parsed = match line {
        [b'I', b' ', b' ', rest @ ..] => parse_access(rest).map(|_| Line::Instruction),
        [b' ', b'L', b' ', rest @ ..] => parse_access(rest).map(Line::Load),
        [b' ', b'S', b' ', rest @ ..] => parse_access(rest).map(Line::Store),
        [b' ', b'M', b' ', rest @ ..] => parse_access(rest).map(Line::Modify),
        // From `--trace-superblocks=yes`: the start of a superblock.
        [b'S', b'B', b' ', rest @ ..] if (1..=16).contains(&rest.len()) => {
            number::<16>(rest).map(|_| Line::Noise)
        }
        _ => is_noise(line).then_some(Line::Noise),
    };
    parsed.ok_or_else(|| {
        let text = String::from_utf8_lossy(&line[..line.len().min(60)]);
        format!("\"{}\" is not a line of lackey's", printable(&text))
    })
}

/// Parses `address,size`.
#[inline]
fn parse_access(text: &[u8]) -> Option<Access> {
    let comma = text.iter().position(|&byte| byte == b',')?;
    let (address, size) = (&text[..comma], &text[comma + 1..]);
    let fits = (1..=16).contains(&address.len()) && (1..=4).contains(&size.len());
    let first = number::<16>(address)?;
    let size = number::<10>(size)?;
    let last = first.checked_add(size.checked_sub(1)?)?;
    (fits && size <= SIZE_LIMIT).then_some(Access { first, last })
}

#[inline]
fn number<const BASE: u32>(digits: &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for &digit in digits {
        let digit = char::from(digit).to_digit(BASE)?;
        value = value.wrapping_mul(BASE.into()).wrapping_add(digit.into());
    }
    Some(value)
}

/// Is it one of valgrind's own lines: `==PID==`, `--PID--` or `**PID**`?
fn is_noise(line: &[u8]) -> bool {
    let [first, second, rest @ ..] = line else {
        return false;
    };
    if first != second || !b"=-*".contains(first) {
        return false;
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(&[*first, *first])
}

/// Is a file that starts like this lackey's text? Then its first line is one of lackey's.
pub(crate) fn is_plausible(start: &[u8]) -> bool {
    let end = start.iter().position(|&byte| byte == b'\n');
    let line = &start[..end.unwrap_or(start.len())];
    parse_line(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::{Gva, Reference};
    use std::io::Cursor;

    fn reader(text: &str) -> LackeyReader {
        let bytes = Cursor::new(text.as_bytes().to_vec());
        LackeyReader::new(Input::new(Box::new(bytes)))
    }

    #[test]
    fn a_snippet_in_the_documented_shape() {
        let mut reader = reader(
            "==7== Lackey\nSB 0401ab70\nI  0401ab70,3\n L 1fff000ffc,8\n S 04222f00,8\nI  0401ab73,5\n M 00001000,4\n--7-- x\n",
        );
        let mut block = Block::new();
        assert_eq!(reader.next(&mut block), Ok(Item::References));
        let expected = [
            (0x1f_ff00_0ffc, false),
            (0x1f_ff00_1000, false),
            (0x422_2f00, true),
            (0x1000, false),
            (0x1000, true),
        ]
        .map(|(address, write)| Reference::new(Gva(address), write));
        assert_eq!(
            (block.references.as_slice(), block.instructions),
            (&expected[..], 2)
        );
        assert_eq!(reader.next(&mut block), Ok(Item::End));
    }

    #[test]
    fn anything_else_names_its_line() {
        let long = "x".repeat(LINE_LIMIT * 20);
        let noise = format!("==1=={}\n", "x".repeat(LINE_LIMIT));
        let cases = [
            ("hello\n", "line 2: \"hello\" is not a line of lackey's"),
            ("\n", "line 2: \"\" is not a line of lackey's"),
            (" L 12,0\n", "line 2: \" L 12,0\" is not a line of lackey's"),
            (
                " L 12,4097\n",
                "line 2: \" L 12,4097\" is not a line of lackey's",
            ),
            (
                " L ffffffffffffffff,2\n",
                "line 2: \" L ffffffffffffffff,2\" is not a line of lackey's",
            ),
            (" L ,2\n", "line 2: \" L ,2\" is not a line of lackey's"),
            (" L 1g,2\n", "line 2: \" L 1g,2\" is not a line of lackey's"),
            ("==x==\n", "line 2: \"==x==\" is not a line of lackey's"),
            ("SB \n", "line 2: \"SB \" is not a line of lackey's"),
            ("SB 04x\n", "line 2: \"SB 04x\" is not a line of lackey's"),
            (" L 1000", "line 2: truncated: the last line has no end"),
            (&long, "line 2: a line of more than 16384 bytes"),
            (&noise, "line 2: a line of more than 16384 bytes"),
        ];
        for (line, message) in cases {
            let mut reader = reader(&format!("I  0401ab70,3\n{line}"));
            let mut block = Block::new();
            assert_eq!(reader.next(&mut block), Ok(Item::References), "{message}");
            assert_eq!(block.instructions, 1);
            block.clear();
            assert_eq!(reader.next(&mut block).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn instructions_are_not_invented() {
        let mut block = Block::new();
        let fault = reader(" L 1000,8\n").next(&mut block).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "line 2: no I lines up to here, so the number of instructions is not known; keep the I lines that lackey writes"
        );
    }
}
