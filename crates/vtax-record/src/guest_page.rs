//! The page in which a guest or a program publishes cumulative counters (docs/guest-page.md).

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use thiserror::Error;

use crate::sys::{Mapping, time_stamp_counter};

/// Bytes of the page.
pub const BYTES: u64 = 4096;
/// Counters of a page at most.
pub const COUNTERS: usize = 63;
/// Bytes of a name at most.
pub const NAME_BYTES: usize = 56;

const WORDS: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"VTAXPAGE");
const VERSION: u64 = 1;
/// How often a reader tries while a publisher writes.
const TRIES: usize = 100;

// Words of the header, and of each counter.
const SEQUENCE: usize = 2;
const TSC: usize = 3;
const TIME: usize = 4;
const COUNT: usize = 5;
const GENERATION: usize = 6;
const FIRST: usize = 8;
const ENTRY: usize = 8;
const VALUE: usize = 7;

/// Why a page cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PageError {
    /// It cannot be opened or mapped; the text has the reason.
    #[error("{0}")]
    File(String),
    /// It does not begin as a page of this version does.
    #[error("it is no guest page of version {VERSION}")]
    NotAPage,
    /// The publisher was writing at each try.
    #[error("its publisher stopped in the middle of a publication")]
    Torn,
    /// A name that cannot be a column.
    #[error("counter {0:?} is not named layer.event, in at most {NAME_BYTES} letters")]
    Name(String),
    /// More counters than there is room for.
    #[error("{0} counters are more than {COUNTERS}")]
    TooMany(usize),
}

/// What a page said at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The publisher's time stamp counter.
    pub tsc: u64,
    /// The publisher's `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Which list of names it is.
    pub generation: u64,
    /// One for each name.
    pub values: Vec<u64>,
}

/// Writes a page.
#[derive(Debug)]
pub struct Publisher {
    page: Mapping,
    counters: usize,
}

impl Publisher {
    /// Begin a page in a file, which is made or emptied.
    pub fn create(path: &Path, names: &[&str]) -> Result<Self, PageError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .and_then(|file| file.set_len(BYTES).map(|()| file))
            .map_err(|error| PageError::File(error.to_string()))?;
        Self::begin(map(&file, true)?, names)
    }

    fn begin(page: Mapping, names: &[&str]) -> Result<Self, PageError> {
        if names.len() > COUNTERS {
            return Err(PageError::TooMany(names.len()));
        }
        let publisher = Self {
            page,
            counters: names.len(),
        };
        // A page that was published before goes on with its sequence, so that readers see a change.
        let old = publisher.page.load(SEQUENCE, Ordering::Acquire);
        let odd = old | 1;
        publisher.open(odd);
        for (index, name) in names.iter().enumerate() {
            publisher.put_name(index, name)?;
        }
        let generation = publisher.page.load(GENERATION, Ordering::Relaxed);
        for (word, value) in [
            (COUNT, names.len() as u64),
            (GENERATION, generation.wrapping_add(1)),
            (1, VERSION),
            (0, MAGIC),
        ] {
            publisher.page.store(word, value, Ordering::Relaxed);
        }
        publisher.close(odd);
        Ok(publisher)
    }

    /// Publish one value for each name; those beyond are left out.
    pub fn publish(&self, values: &[u64], time_ns: u64) {
        let odd = self.page.load(SEQUENCE, Ordering::Relaxed) | 1;
        self.open(odd);
        self.page
            .store(TSC, time_stamp_counter(), Ordering::Relaxed);
        self.page.store(TIME, time_ns, Ordering::Relaxed);
        for (index, value) in values.iter().take(self.counters).enumerate() {
            self.page
                .store(FIRST + index * ENTRY + VALUE, *value, Ordering::Relaxed);
        }
        self.close(odd);
    }

    fn put_name(&self, index: usize, name: &str) -> Result<(), PageError> {
        if !valid(name) {
            return Err(PageError::Name(name.to_owned()));
        }
        let mut bytes = [0_u8; NAME_BYTES];
        for (byte, letter) in bytes.iter_mut().zip(name.bytes()) {
            *byte = letter;
        }
        let start = FIRST + index * ENTRY;
        for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.page
                .store(start + at, u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        self.page.store(start + VALUE, 0, Ordering::Relaxed);
        Ok(())
    }

    fn open(&self, odd: u64) {
        self.page.store(SEQUENCE, odd, Ordering::Relaxed);
        // What is written next must not be seen before the odd number.
        fence(Ordering::Release);
    }

    fn close(&self, odd: u64) {
        self.page
            .store(SEQUENCE, odd.wrapping_add(1), Ordering::Release);
    }
}

/// Reads a page.
#[derive(Debug)]
pub struct Reader {
    page: Mapping,
    names: Vec<String>,
    generation: u64,
}

impl Reader {
    /// Open a page and learn its names.
    pub fn open(path: &Path) -> Result<Self, PageError> {
        let file = File::open(path).map_err(|error| PageError::File(error.to_string()))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        // A mapping beyond the file's end would end the process.
        if length < BYTES {
            return Err(PageError::NotAPage);
        }
        let mut reader = Self {
            page: map(&file, false)?,
            names: Vec::new(),
            generation: 0,
        };
        let words = reader.snapshot()?;
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        if word(0) != MAGIC || word(1) != VERSION {
            return Err(PageError::NotAPage);
        }
        let count = usize::try_from(word(COUNT)).unwrap_or(usize::MAX);
        if count > COUNTERS {
            return Err(PageError::TooMany(count));
        }
        reader.generation = word(GENERATION);
        reader.names = (0..count)
            .map(|index| name_at(&words, index))
            .collect::<Result<_, _>>()?;
        Ok(reader)
    }

    /// Names of the counters.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Read all counters; `None` when the list of names is another one now.
    pub fn sample(&self) -> Result<Option<Sample>, PageError> {
        let words = self.snapshot()?;
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        if word(GENERATION) != self.generation {
            return Ok(None);
        }
        Ok(Some(Sample {
            tsc: word(TSC),
            time_ns: word(TIME),
            generation: self.generation,
            values: (0..self.names.len())
                .map(|index| word(FIRST + index * ENTRY + VALUE))
                .collect(),
        }))
    }

    /// The words of one publication.
    fn snapshot(&self) -> Result<Vec<u64>, PageError> {
        let mut words = Vec::with_capacity(WORDS);
        for _ in 0..TRIES {
            let before = self.page.load(SEQUENCE, Ordering::Acquire);
            if before.is_multiple_of(2) {
                words.clear();
                self.page.copy(0, WORDS, &mut words);
                // What has been read must not be read after the second look at the sequence.
                fence(Ordering::Acquire);
                if self.page.load(SEQUENCE, Ordering::Relaxed) == before {
                    return Ok(words);
                }
            }
            std::hint::spin_loop();
        }
        Err(PageError::Torn)
    }
}

fn map(file: &File, writable: bool) -> Result<Mapping, PageError> {
    Mapping::new(file, WORDS, writable).map_err(|errno| PageError::File(errno.desc().into()))
}

fn name_at(words: &[u64], index: usize) -> Result<String, PageError> {
    let start = FIRST + index * ENTRY;
    let words = words.get(start..start + VALUE).unwrap_or_default();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    if valid(&name) {
        Ok(name)
    } else {
        Err(PageError::Name(name))
    }
}

fn valid(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let part = |part: &str| !part.is_empty() && part.bytes().all(letter);
    name.len() <= NAME_BYTES && name.contains('.') && name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_is_published_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let publisher = Publisher::create(&path, &["guest.pgmajfault", "app.requests"]).unwrap();
        publisher.publish(&[7, 8], 99);
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.names(), ["guest.pgmajfault", "app.requests"]);
        let sample = reader.sample().unwrap().unwrap();
        assert_eq!((sample.values, sample.time_ns), (vec![7, 8], 99));
        assert!(sample.tsc > 0);
        // Another list of names: the reader's columns no longer fit.
        Publisher::create(&path, &["app.other"]).unwrap();
        assert_eq!(reader.sample(), Ok(None));
    }

    #[test]
    fn a_publisher_stopped_in_the_middle_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let publisher = Publisher::create(&path, &["app.x"]).unwrap();
        let reader = Reader::open(&path).unwrap();
        publisher.open(publisher.page.load(SEQUENCE, Ordering::Relaxed) | 1);
        assert_eq!(reader.sample(), Err(PageError::Torn));
        publisher.publish(&[3], 0);
        assert_eq!(reader.sample().unwrap().unwrap().values, [3]);
    }

    #[test]
    fn no_reader_sees_half_of_a_publication() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let names: Vec<String> = (0..COUNTERS)
            .map(|number| format!("app.n{number}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let publisher = Publisher::create(&path, &names).unwrap();
        let reader = Reader::open(&path).unwrap();
        let end = AtomicBool::new(false);
        let whole = std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    if end.load(Ordering::Relaxed) {
                        return;
                    }
                    publisher.publish(&[number; COUNTERS], number);
                    // A publisher that never rests leaves readers no time.
                    for _ in 0..2000 {
                        std::hint::spin_loop();
                    }
                }
            });
            let mut whole = 0;
            for _ in 0..20_000 {
                if let Ok(Some(sample)) = reader.sample() {
                    assert!(sample.values.iter().all(|value| *value == sample.time_ns));
                    whole += 1;
                }
            }
            end.store(true, Ordering::Relaxed);
            whole
        });
        assert!(whole > 1000, "{whole}");
    }

    #[test]
    fn names_must_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        for name in [
            "x",
            "app.",
            "App.x",
            "app.x y",
            &format!("app.{}", "x".repeat(60)),
        ] {
            let error = Publisher::create(&path, &[name]).unwrap_err();
            assert_eq!(error, PageError::Name(name.to_owned()));
        }
        let many = vec!["app.x"; COUNTERS + 1];
        assert_eq!(
            Publisher::create(&path, &many).unwrap_err(),
            PageError::TooMany(COUNTERS + 1)
        );
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
            let _ = Reader::open(&path);
        }
    }
}
