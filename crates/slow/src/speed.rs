//! The file with the speed of a CPU: percent of full speed, as text.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::pace::FULL;

/// The slowest speed, in percent.
const SLOWEST: f64 = 1.0;
/// More bytes than a speed has.
const MOST_BYTES: usize = 16;

#[derive(Debug)]
pub struct SpeedFile(File);

impl SpeedFile {
    /// Make the file of a CPU in the folder, with full speed.
    pub fn create(folder: &Path, cpu: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let mut file = options.open(folder.join(format!("cpu{cpu}")))?;
        writeln!(file, "{FULL}")?;
        Ok(Self(file))
    }

    /// The speed in percent; `None` when the file has none at this moment.
    pub fn read(&self) -> Option<f64> {
        let mut bytes = [0; MOST_BYTES];
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        parse(bytes.get(..length)?)
    }
}

fn parse(bytes: &[u8]) -> Option<f64> {
    let percent: f64 = std::str::from_utf8(bytes).ok()?.trim().parse().ok()?;
    (SLOWEST..=FULL).contains(&percent).then_some(percent)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_no_speed_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = SpeedFile::create(folder.path(), 3).unwrap();
        assert_eq!(file.read(), Some(100.0));
        for (text, speed) in [
            ("50", Some(50.0)),
            ("33.3\n", Some(33.3)),
            ("1", Some(1.0)),
            // As it is while it is written anew.
            ("", None),
            ("0", None),
            ("101", None),
            ("-5", None),
            ("nan", None),
            ("half", None),
        ] {
            fs::write(folder.path().join("cpu3"), text).unwrap();
            assert_eq!(file.read(), speed, "{text:?}");
        }
        let again = SpeedFile::create(folder.path(), 3);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_speed_in_its_range_or_none(bytes in any::<[u8; MOST_BYTES]>()) {
            prop_assert!(parse(&bytes).is_none_or(|percent| (SLOWEST..=FULL).contains(&percent)));
        }
    }
}
