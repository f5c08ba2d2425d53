//! Names of the places in stacks, and the stacks as lines of text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter;
use std::path::{Path, PathBuf};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::layout::{Frame, KERNEL, Stack};
use super::unwind;

/// Longer names are cut; C++ has some of kilobytes.
const MOST_CHARACTERS: usize = 160;
const NO_FILE: &str = "[no file]";
/// Stands for the outer frames of a stack that has more than are kept.
const CUT: &str = "[deeper]";
const OF_KERNEL: &str = "[kernel]";
/// Code in a file that never had a name, such as the memory of user-mode Linux.
const UNNAMED: &str = "[unnamed file]";

/// Paths by the numbers of files: as the kernel knew it, and where the file is now.
pub type Files = BTreeMap<u64, (PathBuf, Option<PathBuf>)>;
pub type Names = HashMap<Frame, String>;

/// The names of all places: ``file`function``, or `file+0xOFFSET` where the function has no
/// name: that of its beginning, if that is known.
pub fn of<'a>(stacks: impl Iterator<Item = &'a Stack>, files: &Files) -> Names {
    let mut places: BTreeMap<u64, BTreeSet<Frame>> = BTreeMap::new();
    for frame in stacks.flat_map(|stack| &stack.frames) {
        places.entry(frame.file()).or_default().insert(*frame);
    }
    let symbolizer = Symbolizer::new();
    let mut names = Names::new();
    for (file, frames) in places {
        let found = if file == KERNEL {
            functions_of_kernel(&symbolizer, frames)
        } else if let Some((path, now)) = files.get(&file) {
            functions_of_file(&symbolizer, path, now.as_deref(), frames)
        } else {
            continue;
        };
        names.extend(found);
    }
    names
}

fn functions_of_kernel(symbolizer: &Symbolizer, frames: BTreeSet<Frame>) -> Vec<(Frame, String)> {
    let addresses: Vec<u64> = frames.iter().map(|frame| frame.0).collect();
    let source = Source::Kernel(Kernel {
        vmlinux: MaybeDefault::None,
        ..Kernel::default()
    });
    let functions = functions(symbolizer, &source, Input::AbsAddr(&addresses));
    let name = |function: Option<String>| {
        function.map_or_else(
            || OF_KERNEL.to_owned(),
            |function| format!("{OF_KERNEL}`{}", clean(&function)),
        )
    };
    let functions = functions.into_iter().chain(iter::repeat(None));
    frames.into_iter().zip(functions.map(name)).collect()
}

fn functions_of_file(
    symbolizer: &Symbolizer,
    path: &Path,
    now: Option<&Path>,
    frames: BTreeSet<Frame>,
) -> Vec<(Frame, String)> {
    let module = clean(&path.file_name().unwrap_or_default().to_string_lossy());
    if now.is_none() && is_unnamed(&module) {
        return frames
            .into_iter()
            .map(|f| (f, UNNAMED.to_owned()))
            .collect();
    }
    let offsets: Vec<u64> = frames.iter().map(|frame| frame.offset()).collect();
    let found = now.map(|now| {
        let source = Source::Elf(Elf::new(now));
        functions(symbolizer, &source, Input::FileOffset(&offsets))
    });
    let found = found.unwrap_or_default();
    let bare = found.iter().any(Option::is_none);
    let places = now.filter(|_| bare).map(unwind::functions);
    let places = places.unwrap_or_default();
    let mut found = found.into_iter();
    let name = |frame: Frame| {
        let function = found.next().flatten();
        let name = function.map_or_else(
            || format!("{module}+{:#x}", begin(&places, frame.offset())),
            |function| format!("{module}`{}", clean(&function)),
        );
        (frame, name)
    };
    frames.into_iter().map(name).collect()
}

/// `#` and a number: `d_tmpfile` of Linux, fs/dcache.c.
fn is_unnamed(name: &str) -> bool {
    let number = name.strip_prefix('#').map(str::parse::<u64>);
    number.is_some_and(|number| number.is_ok())
}

/// Where the function begins that has this offset; the offset itself where none is known to.
fn begin(functions: &[(u64, u64)], offset: u64) -> u64 {
    let after = functions.partition_point(|(start, _)| *start <= offset);
    let before = after.checked_sub(1).and_then(|at| functions.get(at));
    before
        .filter(|(_, end)| offset < *end)
        .map_or(offset, |(start, _)| *start)
}

/// The function of each place; nothing where none can be read.
fn functions(
    symbolizer: &Symbolizer,
    source: &Source<'_>,
    places: Input<&[u64]>,
) -> Vec<Option<String>> {
    let found = symbolizer.symbolize(source, places).unwrap_or_default();
    let name = |one: Symbolized<'_>| match one {
        Symbolized::Sym(symbol) => Some(symbol.name.into_owned()),
        Symbolized::Unknown(_) => None,
    };
    found.into_iter().map(name).collect()
}

/// `class;program;outer;...;inner`, as flame-graph tools read it.
pub fn fold(class: &str, program: &str, stack: &Stack, names: &Names) -> String {
    let mut line = format!("{class};{}", clean(program));
    if stack.cut {
        line.push(';');
        line.push_str(CUT);
    }
    for frame in stack.frames.iter().rev() {
        line.push(';');
        line.push_str(names.get(frame).map_or(NO_FILE, String::as_str));
    }
    line
}

/// A foreign name that cannot be taken for a part of the line, of bounded length.
fn clean(name: &str) -> String {
    let safe = |letter: char| match letter {
        ';' | '`' => '_',
        letter if letter.is_control() || letter.is_whitespace() && letter != ' ' => '_',
        letter => letter,
    };
    name.chars().take(MOST_CHARACTERS).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_bounded_and_break_no_line() {
        let stack = Stack {
            frames: vec![Frame(1 << 40), Frame(0), Frame(9 << 40)],
            cut: true,
        };
        let names = Names::from([(Frame(1 << 40), "module`function".to_owned())]);
        assert_eq!(
            fold("stat", "a;b\nc d", &stack, &names),
            "stat;a_b_c d;[deeper];[no file];[no file];module`function"
        );
        assert!(is_unnamed("#37") && !is_unnamed("#a") && !is_unnamed("37"));
        let functions = [(0x10, 0x20), (0x30, 0x38)];
        let begins = [0xf, 0x1f, 0x20, 0x37, 0x38].map(|offset| begin(&functions, offset));
        assert_eq!(begins, [0xf, 0x10, 0x20, 0x30, 0x38]);
        assert_eq!(clean(&"x".repeat(1000)).len(), MOST_CHARACTERS);
    }
}
