//! Names of the places in stacks, and the stacks as lines of text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::layout::Site;

/// Longer names are cut; C++ has some of kilobytes.
const MOST_CHARACTERS: usize = 160;
const NO_FILE: &str = "[no file]";
/// Stands for the outer frames of a stack that has more than are kept.
const CUT: &str = "[deeper]";

/// Paths by the numbers of files: as the kernel knew it, and where the file is now.
pub type Files = BTreeMap<u64, (PathBuf, Option<PathBuf>)>;
/// Names by file and offset.
pub type Names = HashMap<(u64, u64), String>;

/// The names of all places: ``file`function``, or `file+0xOFFSET` where the function is not known.
pub fn of(stacks: &[(Site, u64)], files: &Files) -> Names {
    let mut places: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (file, offset) in stacks.iter().flat_map(|(site, _)| &site.frames) {
        places.entry(*file).or_default().insert(*offset);
    }
    let symbolizer = Symbolizer::new();
    let mut names = Names::new();
    for (file, offsets) in places {
        let Some((path, now)) = files.get(&file) else {
            continue;
        };
        let module = clean(&path.file_name().unwrap_or_default().to_string_lossy());
        let offsets: Vec<u64> = offsets.into_iter().collect();
        let functions = now
            .as_deref()
            .map(|now| functions(&symbolizer, now, &offsets));
        let mut functions = functions.unwrap_or_default().into_iter();
        for offset in offsets {
            let function = functions.next().flatten();
            let name = function.map_or_else(
                || format!("{module}+{offset:#x}"),
                |function| format!("{module}`{}", clean(&function)),
            );
            names.insert((file, offset), name);
        }
    }
    names
}

fn functions(symbolizer: &Symbolizer, path: &Path, offsets: &[u64]) -> Vec<Option<String>> {
    let source = Source::Elf(Elf::new(path));
    let found = symbolizer.symbolize(&source, Input::FileOffset(offsets));
    let found = found.unwrap_or_default();
    found
        .into_iter()
        .map(|one| match one {
            Symbolized::Sym(symbol) => Some(symbol.name.into_owned()),
            Symbolized::Unknown(_) => None,
        })
        .collect()
}

/// `class;program;outer;...;inner`, as flame-graph tools read it.
pub fn fold(site: &Site, class: &str, names: &Names) -> String {
    let mut line = format!("{class};{}", clean(&site.comm));
    if site.cut {
        line.push(';');
        line.push_str(CUT);
    }
    for place in site.frames.iter().rev() {
        line.push(';');
        line.push_str(names.get(place).map_or(NO_FILE, String::as_str));
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
        let site = Site {
            slot: 0,
            comm: "a;b\nc d".into(),
            frames: vec![(1, 2), (0, 0), (9, 9)],
            cut: true,
        };
        let names = Names::from([((1, 2), "module`function".to_owned())]);
        assert_eq!(
            fold(&site, "stat", &names),
            "stat;a_b_c d;[deeper];[no file];[no file];module`function"
        );
        assert_eq!(clean(&"x".repeat(1000)).len(), MOST_CHARACTERS);
    }
}
