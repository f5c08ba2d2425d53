//! What the programs keep in their maps and behind rows, byte by byte: `bpf/stacks.h`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::sys::stat::{major, minor};

const FRAMES: usize = 32;
pub const UNWIND_ROWS: usize = 1 << 21;
const PATH_BYTES: usize = 1024;
const NAME_BYTES: usize = 256;
const OFFSET_BITS: u32 = 40;
/// Words of `struct row_stack`; other architectures have none.
pub const STACK_WORDS: usize = if cfg!(target_arch = "x86_64") {
    1 + 2 * FRAMES
} else {
    0
};
/// Stands for the file of the kernel, whose addresses have all these bits.
pub const KERNEL: u64 = u64::MAX >> OFFSET_BITS;
/// Bytes of `struct site` before its frames, of `struct mapped_file` before its path.
const SITE_HEAD: usize = 24;
const FILE_HEAD: usize = 16;

/// Where a call was made, as often as it is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub slot: usize,
    /// The program's name.
    pub comm: String,
    pub stack: Stack,
}

/// Frames of code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The innermost first.
    pub frames: Vec<Frame>,
    /// Whether there are more frames than could be kept.
    pub cut: bool,
}

/// A place in code, as the programs write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u64);

impl Frame {
    /// The number of its file; 0 is none.
    pub fn file(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    /// The offset in its file.
    pub fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

impl Stack {
    /// Read the words behind a row.
    pub fn read(words: &[u64]) -> Self {
        let depths = words.first().copied().unwrap_or(0);
        let part = |depth: u64, from: usize| {
            let depth = usize::try_from(depth).unwrap_or(FRAMES).min(FRAMES);
            words.get(from..from + depth).unwrap_or_default()
        };
        let (depth, kernel) = (depths & u64::from(u32::MAX), depths >> 32);
        let frames = part(kernel, 1 + FRAMES).iter().chain(part(depth, 1));
        Self {
            frames: frames.copied().map(Frame).collect(),
            cut: depth.max(kernel) >= FRAMES as u64,
        }
    }
}

impl Site {
    /// Read a key; none where it is not one.
    pub fn read(key: &[u8]) -> Option<Self> {
        let (slot, depth) = (word(key, 0)?, word(key, 4)? as usize);
        let comm = key.get(8..SITE_HEAD)?.split(|byte| *byte == 0).next()?;
        let frames = key.get(SITE_HEAD..)?.as_chunks::<8>().0;
        let frames = frames.iter().take(depth);
        let frames = frames.map(|frame| Frame(u64::from_ne_bytes(*frame)));
        Some(Self {
            slot: slot as usize,
            comm: String::from_utf8_lossy(comm).into_owned(),
            stack: Stack {
                frames: frames.collect(),
                cut: depth >= FRAMES,
            },
        })
    }
}

/// A file in which code was seen, as the programs keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile(Vec<u8>);

impl MappedFile {
    pub fn new(number: u64, path: &Path) -> Self {
        let mut bytes = vec![0; FILE_HEAD + PATH_BYTES + NAME_BYTES];
        let mut names = Vec::new();
        for component in path.components().rev() {
            if let Component::Normal(name) = component {
                names.extend_from_slice(name.as_bytes());
                names.push(0);
            }
        }
        names.truncate(PATH_BYTES);
        if let Some(target) = bytes.get_mut(FILE_HEAD..FILE_HEAD + names.len()) {
            target.copy_from_slice(&names);
        }
        let mut file = Self(bytes);
        file.put(0, number);
        file.put(12, names.len() as u64);
        file
    }

    /// Read a value; none where it is not one.
    pub fn read(value: &[u8]) -> Option<Self> {
        (value.len() >= FILE_HEAD + PATH_BYTES).then(|| Self(value.to_vec()))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn number(&self) -> u64 {
        word(&self.0, 0).map_or(0, u64::from)
    }

    /// Say where its rows are.
    pub fn put_rows(&mut self, first: usize, rows: usize) {
        self.put(4, first as u64);
        self.put(8, rows as u64);
    }

    fn put(&mut self, at: usize, value: u64) {
        if let Some(target) = self.0.get_mut(at..at + 4) {
            target.copy_from_slice(&u32::try_from(value).unwrap_or(0).to_ne_bytes());
        }
    }

    /// Its path as the kernel knew it: of a file in a container, of the file system below.
    pub fn path(&self) -> PathBuf {
        let used = word(&self.0, 12).unwrap_or(0) as usize;
        let names = self.0.get(FILE_HEAD..).unwrap_or_default();
        let names = names.get(..used.min(names.len())).unwrap_or_default();
        let names = names.split(|byte| *byte == 0).rev();
        let names = names.filter(|name| !name.is_empty());
        let root = PathBuf::from("/");
        root.join(names.map(OsStr::from_bytes).collect::<PathBuf>())
    }

    /// Where the file is now, if it still is what it was: here, or under an outer part of its path
    /// that is only a file system's.
    pub fn find(&self, inode: u64) -> Option<PathBuf> {
        let path = self.path();
        let names: Vec<_> = path.components().skip(1).collect();
        let places = (0..names.len()).filter_map(|from| {
            let rest: PathBuf = names.get(from..)?.iter().collect();
            Some(Path::new("/").join(rest))
        });
        let is_it = |place: &PathBuf| place.metadata().is_ok_and(|found| found.ino() == inode);
        places.into_iter().find(is_it)
    }
}

/// The key of a file by what `stat` says; the kernel has another form of device numbers.
pub fn file_key(device: u64, inode: u64) -> Vec<u8> {
    let device = major(device) << 20 | minor(device);
    [inode.to_ne_bytes(), device.to_ne_bytes()].concat()
}

/// The inode of a file's key.
pub fn inode(key: &[u8]) -> u64 {
    long(key, 0).unwrap_or(0)
}

pub fn state(files: u64, lost: u64) -> Vec<u8> {
    [files.to_ne_bytes(), lost.to_ne_bytes()].concat()
}

/// Files and lost calls.
pub fn read_state(value: &[u8]) -> Option<(u64, u64)> {
    Some((long(value, 0)?, long(value, 8)?))
}

pub fn count(value: Vec<u8>) -> Option<u64> {
    long(&value, 0)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_path_is_kept_and_shown_as_it_was() {
        let path = Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6");
        let mut file = MappedFile::new(7, path);
        file.put_rows(100, 20);
        let read = MappedFile::read(file.bytes()).unwrap();
        assert_eq!((read.path(), read.number()), (path.into(), 7));
        assert_eq!(MappedFile::read(&[0; 20]), None);
    }

    #[test]
    fn a_file_is_found_under_the_inner_part_of_its_path_and_only_while_it_is_the_same() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("program");
        fs::write(&own, "").unwrap();
        let inode = own.metadata().unwrap().ino();
        let below = Path::new("/layers/1").join(own.strip_prefix("/").unwrap());
        assert_eq!(MappedFile::new(1, &below).find(inode), Some(own.clone()));
        assert_eq!(MappedFile::new(1, &own).find(inode + 1), None);
    }

    #[test]
    fn what_the_programs_write_is_read_and_nothing_else() {
        let mut key = vec![0; SITE_HEAD + 8 * FRAMES];
        key[0] = 5;
        key[4] = 2;
        key[8..11].copy_from_slice(b"tar");
        key[SITE_HEAD..SITE_HEAD + 8].copy_from_slice(&(3 << OFFSET_BITS | 0x10_u64).to_ne_bytes());
        let site = Site::read(&key).unwrap();
        assert_eq!((site.slot, site.comm.as_str()), (5, "tar"));
        let frames = &site.stack.frames;
        assert_eq!((frames[0].file(), frames[0].offset()), (3, 0x10));
        assert_eq!((frames[1], site.stack.cut), (Frame(0), false));
        assert_eq!(Site::read(&key[..10]), None);
    }

    #[test]
    fn a_stack_has_the_kernels_frames_inside() {
        let address = 0xffff_ffff_8123_4567;
        let mut words = [7; 1 + 2 * FRAMES];
        words[0] = 2 | 1 << 32;
        words[1 + FRAMES] = address;
        let stack = Stack::read(&words);
        assert_eq!(stack.frames, [Frame(address), Frame(7), Frame(7)]);
        assert_eq!((stack.frames[0].file(), stack.cut), (KERNEL, false));
        words[0] = u64::MAX;
        assert_eq!(Stack::read(&words).frames.len(), 2 * FRAMES);
        assert_eq!(
            Stack::read(&words[..9]),
            Stack {
                frames: vec![],
                cut: true
            }
        );
    }
}
