//! The files of a recording.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use vtax_sys::state;
use vtax_sys::terminal::Error;

/// The folder of one recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// Make the folder of a recording.
    ///
    /// Fails when the folder cannot be made or holds a recording already.
    pub fn create(path: &Path) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|error| failed(path, error))?;
        let folder = Self::open(path);
        for file in [folder.stream(), folder.rows()] {
            if file.exists() {
                return Err(Error::misuse(
                    file.display().to_string(),
                    "there is a recording already",
                    "name another folder with --out",
                ));
            }
        }
        Ok(folder)
    }

    /// Use an existing folder.
    pub fn open(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The rows while they are recorded.
    pub fn stream(&self) -> PathBuf {
        self.0.join("intervals.arrows")
    }

    /// The finished rows.
    pub fn rows(&self) -> PathBuf {
        self.0.join("intervals.parquet")
    }

    /// Write one of the descriptions; the file appears when it is complete.
    ///
    /// Fails when the file cannot be written, or when `value` has no JSON form.
    pub fn describe(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(value);
        let text = text.map_err(|error| failed(&self.0.join(name), error))?;
        self.write(name, &text)
    }

    /// Write a file, which appears when it is complete.
    ///
    /// Fails when the file cannot be written.
    pub fn write(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let path = self.0.join(name);
        state::replace(&path, 0o644, |file| file.write_all(text))
            .map_err(|error| failed(&path, error))
    }
}

/// The error of a file that cannot be written or read.
pub fn failed(path: &Path, error: impl ToString) -> Error {
    Error::failure(
        path.display().to_string(),
        error,
        "check the folder and the free space",
    )
}
