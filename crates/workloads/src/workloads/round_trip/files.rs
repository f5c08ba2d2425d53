//! Two open files that grow and are read back.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::cast;
use crate::checksum::Checksum;
use crate::message::{MESSAGE_BYTES, Message, record};
use vtax_sys::terminal::Error;

/// The most records of a file before it is checked and emptied: 4 MiB.
const MOST_RECORDS: u64 = 65_536;

/// Both files; they are removed at the end.
#[derive(Debug)]
pub struct Files {
    logs: [Log; 2],
    random: fastrand::Rng,
    checksum: Checksum,
    /// Bytes that were appended to both files in total.
    pub bytes: u64,
    /// Records that were wrong or could not be read.
    pub errors: u64,
}

impl Files {
    /// Create both files in a folder.
    ///
    /// Fails when a file cannot be made in the folder or exists already.
    pub fn create(folder: &Path, seed: u64) -> Result<Self, Error> {
        let first = Log::create(folder, 1, seed)?;
        let second = Log::create(folder, 2, !seed)?;
        Ok(Self {
            logs: [first, second],
            random: fastrand::Rng::with_seed(seed),
            checksum: Checksum::new(),
            bytes: 0,
            errors: 0,
        })
    }

    /// Append a record to each file, and read it and an earlier one back.
    ///
    /// Fails when a file cannot be written. Records that are wrong or cannot be read are counted in
    /// `errors`.
    pub fn append(&mut self) -> Result<(), Error> {
        for log in &mut self.logs {
            if log.records == MOST_RECORDS {
                self.errors += log.wrong_records();
                log.empty()?;
            }
            log.append()?;
            self.bytes += cast::count(MESSAGE_BYTES);
            let earlier = self.random.u64(..log.records);
            for at in [log.records - 1, earlier] {
                match log.read(at) {
                    Ok(bytes) if bytes == log.expected(at) => self.checksum.add(first_word(&bytes)),
                    _ => self.errors += 1,
                }
            }
        }
        Ok(())
    }

    /// Read everything back.
    ///
    /// Fails when the length of a file cannot be found out. Records that are wrong or cannot be
    /// read are counted in `errors`.
    pub fn check_all(&mut self) -> Result<(), Error> {
        for log in &mut self.logs {
            self.errors += log.wrong_records();
            let length = log
                .file
                .metadata()
                .map_err(|error| log.failed(&error))?
                .len();
            self.errors += u64::from(length != log.records * cast::count(MESSAGE_BYTES));
        }
        Ok(())
    }

    /// The checksum of all records that were read and right.
    pub fn checksum(&self) -> u64 {
        self.checksum.value()
    }
}

fn first_word(bytes: &Message) -> u64 {
    bytes
        .split_first_chunk()
        .map_or(0, |(first, _)| u64::from_le_bytes(*first))
}

/// A file of records.
#[derive(Debug)]
struct Log {
    file: File,
    path: PathBuf,
    seed: u64,
    /// The number of the first record in the file.
    first: u64,
    records: u64,
}

impl Log {
    fn create(folder: &Path, number: u8, seed: u64) -> Result<Self, Error> {
        let path = folder.join(format!("round-trip-{number}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(|error| failed(&path, &error))?;
        Ok(Self {
            file,
            path,
            seed,
            first: 0,
            records: 0,
        })
    }

    fn expected(&self, at: u64) -> Message {
        record(self.seed, self.first + at)
    }

    fn append(&mut self) -> Result<(), Error> {
        let bytes = self.expected(self.records);
        self.file
            .write_all_at(&bytes, offset(self.records))
            .map_err(|error| self.failed(&error))?;
        self.records += 1;
        Ok(())
    }

    fn read(&self, at: u64) -> std::io::Result<Message> {
        let mut bytes = [0; MESSAGE_BYTES];
        self.file.read_exact_at(&mut bytes, offset(at))?;
        Ok(bytes)
    }

    fn wrong_records(&self) -> u64 {
        let right = |at: &u64| {
            self.read(*at)
                .is_ok_and(|bytes| bytes == self.expected(*at))
        };
        self.records - cast::count((0..self.records).filter(right).count())
    }

    fn empty(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(|error| self.failed(&error))?;
        self.first += self.records;
        self.records = 0;
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        failed(&self.path, error)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A file that cannot be removed is left behind.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn offset(record: u64) -> u64 {
    record * cast::count(MESSAGE_BYTES)
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let shown = path.display().to_string();
    Error::input_output(&shown, error, "start it in a folder with 8 MiB to write")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_their_records_and_go_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::create(folder.path(), 1).unwrap();
        for _ in 0..100 {
            files.append().unwrap();
        }
        files.logs[0].empty().unwrap();
        files.append().unwrap();
        files.check_all().unwrap();
        assert_eq!((files.bytes, files.errors), (2 * 101 * 64, 0));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        drop(files);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_changed_a_missing_and_an_additional_byte_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::create(folder.path(), 1).unwrap();
        for _ in 0..10 {
            files.append().unwrap();
        }
        files.logs[0].file.write_all_at(b"x", 200).unwrap();
        files.logs[1].file.set_len(639).unwrap();
        files.check_all().unwrap();
        assert_eq!(files.errors, 3);
        files.logs[1].file.write_all_at(b"x", 640).unwrap();
        files.check_all().unwrap();
        assert_eq!(files.errors, 6);
    }
}
