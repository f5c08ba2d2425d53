//! Writing a page.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use nix::fcntl::OFlag;

use super::{
    BYTES, COUNT, COUNTERS, ENTRY, FIRST, GENERATION, MAGIC, PageError, SEQUENCE, TIME, TSC,
    VERSION, WORDS, is_name, value_word,
};
use crate::calls::memory::Mapping;
use crate::clock::{monotonic_ns, time_stamp_counter};

#[derive(Debug)]
pub struct Publisher {
    memory: Memory,
    words: Vec<u64>,
    counters: usize,
}

/// Where the page is.
#[derive(Debug)]
enum Memory {
    /// A file that is written by system calls: file systems that pass a guest's writes to the host
    /// (hostfs, 9p) pass system calls at once, but not stores into a mapping.
    File(File),
    /// The memory of a device.
    Device(Mapping),
}

impl Publisher {
    /// Begin a page in a file, which is created if necessary.
    ///
    /// Fails when the file cannot be written, or a name or their number is not allowed.
    pub fn create(path: &Path, names: &[&str]) -> Result<Self, PageError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)
            .and_then(|file| file.set_len(BYTES as u64).map(|()| file))
            .map_err(|error| PageError::file(&error))?;
        Self::begin(Memory::File(file), names)
    }

    /// Begin a page in the memory of a device, such as `resource2` of an ivshmem device in sysfs.
    ///
    /// Fails when the memory cannot be mapped, or a name or their number is not allowed.
    pub fn device(path: &Path, names: &[&str]) -> Result<Self, PageError> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| PageError::file(&error))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if length < BYTES as u64 {
            return Err(PageError::File(format!(
                "its memory has {length} bytes, not {BYTES}"
            )));
        }
        let mapping = Mapping::new(&file, WORDS, true)
            .map_err(|errno| PageError::File(errno.desc().into()))?;
        Self::begin(Memory::Device(mapping), names)
    }

    fn begin(memory: Memory, names: &[&str]) -> Result<Self, PageError> {
        if names.len() > COUNTERS {
            return Err(PageError::TooMany(names.len()));
        }
        // A page that was published before continues its sequence, so that readers see a change.
        let mut words = vec![0; FIRST + names.len() * ENTRY];
        for (index, word) in [(0, MAGIC), (1, VERSION), (COUNT, names.len() as u64)] {
            put(&mut words, index, word);
        }
        let (sequence, generation) = (memory.word(SEQUENCE), memory.word(GENERATION));
        put(&mut words, SEQUENCE, sequence.map_err(failed)?);
        put(
            &mut words,
            GENERATION,
            generation.map_err(failed)?.wrapping_add(1),
        );
        for (index, name) in names.iter().enumerate() {
            for (at, word) in name_words(name)?.into_iter().enumerate() {
                put(&mut words, FIRST + index * ENTRY + at, word);
            }
        }
        let mut publisher = Self {
            memory,
            words,
            counters: names.len(),
        };
        publisher.write_from(0).map_err(failed)?;
        Ok(publisher)
    }

    /// Publish one value for each name, with the time; further values are left out.
    ///
    /// Fails when the page cannot be written.
    pub fn publish(&mut self, values: &[u64]) -> Result<(), PageError> {
        for (index, value) in values.iter().take(self.counters).enumerate() {
            put(&mut self.words, value_word(index), *value);
        }
        self.write_from(TSC).map_err(failed)
    }

    /// The value of a counter in the last publication.
    pub fn value(&self, index: usize) -> Option<u64> {
        let in_use = index < self.counters;
        in_use
            .then(|| self.words.get(value_word(index)).copied())
            .flatten()
    }

    /// Write all words from `first` on as one publication.
    fn write_from(&mut self, first: usize) -> io::Result<()> {
        let odd = self.open()?;
        // The time is read after the odd number is written: a reader that saw the number before
        // knows that this time is later.
        put(&mut self.words, TIME, monotonic_ns());
        put(&mut self.words, TSC, time_stamp_counter());
        // The sequence itself is only written before and after.
        let head = self.words.get(first..SEQUENCE).unwrap_or_default();
        let rest = first.max(SEQUENCE + 1);
        let tail = self.words.get(rest..).unwrap_or_default();
        self.memory.write(first, head)?;
        self.memory.write(rest, tail)?;
        // The values must be visible before the even number.
        fence(Ordering::Release);
        let even = odd.wrapping_add(1);
        self.memory.write(SEQUENCE, &[even])?;
        put(&mut self.words, SEQUENCE, even);
        Ok(())
    }

    fn open(&self) -> io::Result<u64> {
        let odd = self.words.get(SEQUENCE).copied().unwrap_or(0) | 1;
        self.memory.write(SEQUENCE, &[odd])?;
        // The values must not be visible before the odd number.
        fence(Ordering::Release);
        Ok(odd)
    }
}

impl Memory {
    fn word(&self, word: usize) -> io::Result<u64> {
        match self {
            Self::Device(mapping) => Ok(mapping.load(word, Ordering::Acquire)),
            Self::File(file) => {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, word as u64 * 8)?;
                Ok(u64::from_le_bytes(bytes))
            }
        }
    }

    fn write(&self, first: usize, words: &[u64]) -> io::Result<()> {
        match self {
            Self::Device(mapping) => {
                for (at, word) in words.iter().enumerate() {
                    mapping.store(first + at, *word, Ordering::Relaxed);
                }
                Ok(())
            }
            Self::File(file) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                file.write_all_at(&bytes, first as u64 * 8)
            }
        }
    }
}

fn put(words: &mut [u64], index: usize, value: u64) {
    if let Some(word) = words.get_mut(index) {
        *word = value;
    }
}

fn failed(error: io::Error) -> PageError {
    PageError::file(&error)
}

fn name_words(name: &str) -> Result<[u64; 7], PageError> {
    if !is_name(name) {
        return Err(PageError::Name(name.to_owned()));
    }
    let mut words = [0; 7];
    for (word, bytes) in words.iter_mut().zip(name.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        for (to, from) in whole.iter_mut().zip(bytes) {
            *to = *from;
        }
        *word = u64::from_le_bytes(whole);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::super::Reader;
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Run `check` with both ways of writing: a file can stand for the memory of a device.
    fn both(check: impl Fn(&Path, &dyn Fn(&[&str]) -> Result<Publisher, PageError>)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        check(&path, &|names| Publisher::create(&path, names));
        let path = folder.path().join("device");
        File::create(&path).unwrap().set_len(BYTES as u64).unwrap();
        check(&path, &|names| Publisher::device(&path, names));
    }

    #[test]
    fn what_is_published_is_read() {
        both(|path, create| {
            let mut publisher = create(&["guest.pgmajfault", "app.requests"]).unwrap();
            let before = monotonic_ns();
            publisher.publish(&[7, 8, 9]).unwrap();
            assert_eq!((publisher.value(1), publisher.value(2)), (Some(8), None));
            let mut reader = Reader::open(path).unwrap();
            assert_eq!(reader.names(), ["guest.pgmajfault", "app.requests"]);
            let sample = reader.sample().unwrap().unwrap();
            assert_eq!(sample.values, [7, 8]);
            assert!((before..=monotonic_ns()).contains(&sample.time_ns));
            assert!(sample.tsc > 0);
            // Another list of names: the reader's columns no longer fit.
            create(&["app.other"]).unwrap();
            assert_eq!(reader.sample(), Ok(None));
            reader.learn().unwrap();
            assert_eq!(reader.names(), ["app.other"]);
        });
    }

    #[test]
    fn a_publisher_stopped_in_the_middle_is_told() {
        both(|path, create| {
            let mut publisher = create(&["app.x"]).unwrap();
            let mut reader = Reader::open(path).unwrap();
            publisher.open().unwrap();
            assert_eq!(reader.sample(), Err(PageError::Torn));
            publisher.publish(&[3]).unwrap();
            assert_eq!(reader.sample().unwrap().unwrap().values, [3]);
            // A later publisher continues after one that stopped in the middle.
            publisher.open().unwrap();
            let mut next = create(&["app.x"]).unwrap();
            next.publish(&[4]).unwrap();
            reader.learn().unwrap();
            assert_eq!(reader.sample().unwrap().unwrap().values, [4]);
        });
    }

    #[test]
    fn no_reader_sees_half_of_a_publication() {
        let names: Vec<String> = (0..COUNTERS)
            .map(|number| format!("app.n{number}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        both(|path, create| {
            let mut publisher = create(&names).unwrap();
            let mut reader = Reader::open(path).unwrap();
            let end = AtomicBool::new(false);
            let whole = std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0.. {
                        if end.load(Ordering::Relaxed) {
                            return;
                        }
                        publisher.publish(&[number; COUNTERS]).unwrap();
                        // A publisher that never rests leaves readers no time.
                        for _ in 0..5000 {
                            std::hint::spin_loop();
                        }
                    }
                });
                let mut whole = 0;
                for _ in 0..20_000 {
                    if let Ok(Some(sample)) = reader.sample() {
                        assert!(sample.values.iter().all(|value| *value == sample.values[0]));
                        whole += 1;
                    }
                }
                end.store(true, Ordering::Relaxed);
                whole
            });
            assert!(whole > 1000, "{whole}");
        });
    }

    #[test]
    fn names_must_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let long = format!("app.{}", "x".repeat(60));
        for name in ["x", "app.", "App.x", "app.x y", &long] {
            let error = Publisher::create(&path, &[name]).unwrap_err();
            assert_eq!(error, PageError::Name(name.to_owned()));
        }
        let longest = format!("app.{}", "x".repeat(52));
        Publisher::create(&path, &[&longest]).unwrap();
        assert_eq!(Reader::open(&path).unwrap().names(), [longest]);
        let many = vec!["app.x"; COUNTERS + 1];
        assert_eq!(
            Publisher::create(&path, &many).unwrap_err(),
            PageError::TooMany(COUNTERS + 1)
        );
    }
}
