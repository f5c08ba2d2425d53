//! Finds the BLAS that a program asks the loader for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DynamicTag, FileHeader64};
use object::read::elf::FileHeader;

/// Parts of the names of BLAS libraries.
const NAMES: [&str; 4] = ["blas", "mkl_rt", "libblis", "libatlas"];

/// The entries of a dynamic section that matter here.
const KINDS: [DynamicTag; 3] = [DT_NEEDED, DT_RPATH, DT_RUNPATH];

/// What a program needs.
#[derive(Debug, PartialEq, Eq)]
pub enum Need {
    /// A BLAS.
    Library {
        /// The name in the program.
        requested: String,
        /// What to load: the name, or the path where the program itself says so.
        load_as: String,
    },
    /// The program needs no BLAS, for this reason.
    None(String),
}

/// The BLAS that `program` (a path, or a name in `PATH`) is linked with.
///
/// Fails when the program is not in `PATH` or cannot be read. A program that needs no BLAS gives
/// [`Need::None`].
pub fn blas_of(program: &Path) -> Result<Need> {
    let path = find(program)?;
    let shown = path.display();
    let data = fs::read(&path).with_context(|| format!("{shown}"))?;
    let Some(dynamic) = Dynamic::read(&data) else {
        return Ok(Need::None(format!(
            "{shown} is not a dynamically linked x86-64 program"
        )));
    };
    let is_blas = |name: &&String| NAMES.iter().any(|part| name.contains(part));
    let Some(requested) = dynamic.needed.iter().find(is_blas).cloned() else {
        return Ok(Need::None(format!("{shown} is not linked with a BLAS")));
    };
    let load_as = dynamic
        .own_copy(&path, &requested)
        .unwrap_or_else(|| requested.clone());
    Ok(Need::Library { requested, load_as })
}

fn find(program: &Path) -> Result<PathBuf> {
    if program.components().count() > 1 || program.is_absolute() {
        return Ok(program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| anyhow!("{} is not in PATH; give its path", program.display()))
}

/// The parts of an ELF file's dynamic section that matter here.
#[derive(Debug, Default)]
struct Dynamic {
    needed: Vec<String>,
    /// Folders in which the program itself looks for its libraries.
    folders: Vec<String>,
}

impl Dynamic {
    /// Parse an ELF file; `None`: it is not a dynamic 64-bit ELF file, or is damaged.
    fn read(data: &[u8]) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let table = sections.dynamic_table(endian, data).ok()?;
        let mut found = Self::default();
        for entry in table.iter().filter(|entry| KINDS.contains(&entry.tag)) {
            let text = String::from_utf8_lossy(table.string(entry).ok()?).into_owned();
            if entry.tag == DT_NEEDED {
                found.needed.push(text);
            } else {
                found.folders.extend(text.split(':').map(str::to_owned));
            }
        }
        // A program that is statically linked has no such section, or an empty one.
        (!found.needed.is_empty()).then_some(found)
    }

    /// The library's file, where the program's own list of folders has it.
    fn own_copy(&self, program: &Path, name: &str) -> Option<String> {
        let origin = fs::canonicalize(program)
            .ok()?
            .parent()?
            .to_string_lossy()
            .into_owned();
        let folders = self.folders.iter().map(|folder| {
            folder
                .replace("${ORIGIN}", &origin)
                .replace("$ORIGIN", &origin)
        });
        let mut candidates = folders.map(|folder| Path::new(&folder).join(name));
        let found = candidates.find(|path| path.is_file())?;
        Some(found.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_dynamic_program_needs_no_blas() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        for content in [
            &b"#!/bin/sh\n"[..],
            b"",
            b"\x7fELF\x02\x01\x01",
            &[0x7f; 4096],
        ] {
            fs::write(&script, content).unwrap();
            assert!(matches!(blas_of(&script).unwrap(), Need::None(_)));
        }
        assert!(matches!(
            blas_of(Path::new("/bin/sh")).unwrap(),
            Need::None(_)
        ));
        assert!(blas_of(Path::new("/nonexistent")).is_err());
        assert!(blas_of(Path::new("no-such-program")).is_err());
    }

    #[test]
    fn a_programs_own_folder_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "").unwrap();
        fs::write(folder.path().join("libblas.so.3"), "").unwrap();
        let dynamic = Dynamic {
            needed: vec!["libblas.so.3".into()],
            folders: vec!["/nonexistent".into(), "$ORIGIN/.".into()],
        };
        let found = dynamic.own_copy(&program, "libblas.so.3").unwrap();
        assert!(Path::new(&found).is_file());
        assert_eq!(dynamic.own_copy(&program, "libother.so"), None);
    }
}
