//! Reading a page.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::OFlag;

use super::{
    BYTES, COUNT, COUNTERS, ENTRY, FIRST, GENERATION, MAGIC, PageError, SEQUENCE, TIME, TSC, VALUE,
    VERSION, is_name, value_word,
};

/// How often a reader tries while a publisher writes.
const TRIES: usize = 100;
/// How often a reader that may wait does so, for a millisecond each time.
const PATIENCE: usize = 2000;

/// The content of a page at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The number of the publication; it grows by 2 each time.
    pub sequence: u64,
    /// The publisher's time stamp counter.
    pub tsc: u64,
    /// The publisher's `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// One value for each name.
    pub values: Vec<u64>,
}

/// Reads a page.
///
/// It uses system calls, not a mapping: the publisher may truncate its file, and touching a mapping
/// beyond a file's end would end this process.
#[derive(Debug)]
pub struct Reader {
    file: File,
    names: Vec<String>,
    generation: u64,
}

impl Reader {
    /// Open a page and learn its names.
    ///
    /// Fails when the page cannot be read, is not of this version, or is being written at each try.
    pub fn open(path: &Path) -> Result<Self, PageError> {
        let mut reader = Self::unlearned(path)?;
        patiently(|| reader.learn())?;
        Ok(reader)
    }

    /// A reader that has not looked into its file yet.
    fn unlearned(path: &Path) -> Result<Self, PageError> {
        // The file may belong to another user who would have this process follow a link or wait for
        // a pipe.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags.bits())
            .open(path)
            .map_err(|error| PageError::file(&error))?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(PageError::NotAPage);
        }
        Ok(Self {
            file,
            names: Vec::new(),
            generation: 0,
        })
    }

    /// Read all counters like [`Reader::sample`], and wait up to 2 s for a publication to end: an
    /// emulated guest's through 9p takes milliseconds, and on a busy host a guest loses its CPU in it.
    ///
    /// Fails when the page cannot be read, is not of this version, or is being written at each try.
    pub fn sample_patiently(&mut self) -> Result<Option<Sample>, PageError> {
        patiently(|| self.sample())
    }

    /// Take the names that the page has at this moment.
    ///
    /// Fails when the page cannot be read, is not of this version, or is being written at each try.
    pub fn learn(&mut self) -> Result<(), PageError> {
        let words = self.snapshot()?;
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        if word(0) != MAGIC || word(1) != VERSION {
            return Err(PageError::NotAPage);
        }
        let count = usize::try_from(word(COUNT)).unwrap_or(usize::MAX);
        if count > COUNTERS {
            return Err(PageError::TooMany(count));
        }
        self.generation = word(GENERATION);
        self.names = (0..count)
            .map(|index| name_at(&words, index))
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Read all counters; `None` when the list of names has changed.
    ///
    /// Fails when the page cannot be read, is not of this version, or is being written at each try.
    pub fn sample(&mut self) -> Result<Option<Sample>, PageError> {
        let words = self.snapshot()?;
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        if word(GENERATION) != self.generation {
            return Ok(None);
        }
        Ok(Some(Sample {
            sequence: word(SEQUENCE),
            tsc: word(TSC),
            time_ns: word(TIME),
            values: (0..self.names.len())
                .map(|index| word(value_word(index)))
                .collect(),
        }))
    }

    /// The words of one publication.
    fn snapshot(&self) -> Result<Vec<u64>, PageError> {
        let mut page = [0; BYTES];
        for _ in 0..TRIES {
            let before = self.sequence()?;
            if before.is_multiple_of(2) {
                self.read(&mut page, 0)?;
                let words = page.as_chunks::<8>().0;
                let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                if words.get(SEQUENCE) == Some(&before) && self.sequence()? == before {
                    return Ok(words);
                }
            }
            std::hint::spin_loop();
        }
        Err(PageError::Torn)
    }

    fn sequence(&self) -> Result<u64, PageError> {
        let mut bytes = [0; 8];
        self.read(&mut bytes, SEQUENCE as u64 * 8)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), PageError> {
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => PageError::NotAPage,
                _ => PageError::file(&error),
            })
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Try again while a publisher writes.
fn patiently<T>(mut read: impl FnMut() -> Result<T, PageError>) -> Result<T, PageError> {
    for _ in 0..PATIENCE {
        match read() {
            Err(PageError::Torn) => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    read()
}

fn name_at(words: &[u64], index: usize) -> Result<String, PageError> {
    let start = FIRST + index * ENTRY;
    let words = words.get(start..start + VALUE).unwrap_or_default();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    if is_name(&name) {
        Ok(name)
    } else {
        Err(PageError::Name(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Publisher;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_that_is_cut_off_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let _publisher = Publisher::create(&path, &["app.x"]).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        File::create(&path).unwrap();
        assert_eq!(reader.sample(), Err(PageError::NotAPage));
    }

    #[test]
    fn a_publication_that_takes_long_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let _publisher = Publisher::create(&path, &["app.x"]).unwrap();
        let write = |sequence: u64| {
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&sequence.to_le_bytes(), SEQUENCE as u64 * 8)
                .unwrap();
        };
        write(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                write(4);
            });
            let mut reader = Reader::open(&path).unwrap();
            assert_eq!(reader.sample_patiently().unwrap().unwrap().sequence, 4);
        });
        write(5);
        assert_eq!(Reader::open(&path).unwrap_err(), PageError::Torn);
    }

    #[test]
    fn only_a_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page");
        let _publisher = Publisher::create(&page, &["app.x"]).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&page, &link).unwrap();
        assert!(matches!(Reader::open(&link), Err(PageError::File(_))));
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(Reader::open(&pipe).unwrap_err(), PageError::NotAPage);
    }

    proptest! {
        #[test]
        fn any_file_is_answered(mut bytes in proptest::collection::vec(any::<u8>(), 0..5000), headed: bool) {
            if headed && bytes.len() >= 24 {
                bytes[..8].copy_from_slice(b"VTAXPAGE");
                bytes[8..16].copy_from_slice(&1_u64.to_le_bytes());
                bytes[16] &= 0xfe;
            }
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("page");
            std::fs::write(&path, bytes).unwrap();
            // Without the patience of `open`: nobody ends a publication here.
            let _ = Reader::unlearned(&path).unwrap().learn();
        }
    }
}
