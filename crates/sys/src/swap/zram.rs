//! A swap device in compressed memory (kernel documentation, admin-guide/blockdev/zram).
//!
//! The device's number alone does not say whose it is: after a restart, or when it was removed,
//! another program's device may have the same number. So the record in the folder also has the UUID
//! that was written into the device, and a sweep removes a device only if it has that UUID. An
//! agent that is killed in the instant before the UUID is written leaves a device that holds
//! nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;

use crate::calls::memory::page_bytes;
use crate::calls::swap;
use crate::gated::c_string;
use crate::swap::Refused;
use crate::swap::header::{self, Uuid, header};
use crate::tree::Tree;

/// The extension of the record's name in the folder.
pub const EXTENSION: &str = "zram";

const ADD: &str = "/sys/class/zram-control/hot_add";
const REMOVE: &str = "/sys/class/zram-control/hot_remove";
const UUID: &str = "/proc/sys/kernel/random/uuid";
/// Tries, while a program that looks at new devices, such as udev, has the device open.
const TRIES: u32 = 40;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// A device in use. Dropping it turns it off and removes it.
#[derive(Debug)]
pub struct Zram {
    number: u32,
    record: PathBuf,
}

impl Zram {
    /// Make a device that takes `bytes` of pages, recorded in `folder`, and swap to it.
    ///
    /// Fails when the kernel has no zram.
    pub fn on(tree: &Tree, folder: &Path, name: &str, bytes: u64) -> Result<Self, Refused> {
        let uuid = tree.text(UUID).as_deref().and_then(parse_uuid);
        let uuid = uuid.ok_or_else(|| Refused {
            reason: format!("{UUID}: it gives none"),
            remedy: "mount /proc",
        })?;
        let number = add().map_err(|error| Refused::new(ADD, &error, "try: modprobe zram"))?;
        let record = folder.join(format!("{name}.{EXTENSION}"));
        let this = Self { number, record };
        // From here on dropping removes it.
        this.make(uuid, bytes).map_err(|error| {
            let thing = format!("swap device {}", device(number));
            Refused::new(&thing, &error, "see dmesg, or swap to a file")
        })?;
        Ok(this)
    }

    fn make(&self, uuid: Uuid, bytes: u64) -> io::Result<()> {
        let mut record = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.record)?;
        record.write_all(written(self.number, uuid).as_bytes())?;
        let page = page_bytes();
        let header = header(bytes / page, page, uuid)?;
        let size = format!("/sys/block/zram{}/disksize", self.number);
        fs::write(size, (bytes / page * page).to_string())?;
        let device = device(self.number);
        let mut file = OpenOptions::new().write(true).open(&device)?;
        file.write_all(&header)?;
        file.sync_all()?;
        drop(file);
        Ok(swap::on(&c_string(device)?)?)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        if release(self.number) {
            let _ = fs::remove_file(&self.record);
        }
    }
}

/// Turn off and remove the device of a record, if it is still the same device, and the record.
/// False when the device is still in use: the record then stays, so that a later sweep finds it.
pub fn remove(record: &Path) -> bool {
    let text = fs::read_to_string(record).unwrap_or_default();
    let same = read(&text).filter(|(number, uuid)| {
        let found = File::open(device(*number)).and_then(header::uuid);
        found.is_ok_and(|found| found == *uuid)
    });
    same.is_none_or(|(number, _)| release(number)) && fs::remove_file(record).is_ok()
}

fn add() -> io::Result<u32> {
    let text = fs::read_to_string(ADD)?;
    let number = text.trim().parse();
    number.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no number"))
}

/// Turn the device off and remove it.
fn release(number: u32) -> bool {
    let Ok(name) = c_string(device(number)) else {
        return false;
    };
    match swap::off(&name) {
        // EINVAL: the device was not on.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(_) => return false,
    }
    (0..TRIES).any(|_| match fs::write(REMOVE, number.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            sleep(BETWEEN_TRIES);
            false
        }
        done => done.is_ok(),
    })
}

fn device(number: u32) -> String {
    format!("/dev/zram{number}")
}

fn written(number: u32, uuid: Uuid) -> String {
    format!("{number} {:032x}\n", u128::from_be_bytes(uuid))
}

fn read(record: &str) -> Option<(u32, Uuid)> {
    let (number, uuid) = record.trim().split_once(' ')?;
    Some((number.parse().ok()?, parse_uuid(uuid)?))
}

/// A UUID; `None` for text that is no UUID, and for zeros, which a device without a UUID has.
fn parse_uuid(text: &str) -> Option<Uuid> {
    let number = u128::from_str_radix(&text.replace('-', ""), 16).ok()?;
    (number != 0).then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let uuid = parse_uuid("0f8fad5b-d9cb-469f-a165-70867728950e").unwrap();
        assert_eq!(read(&written(3, uuid)), Some((3, uuid)));
        for wrong in ["", "3", "x 1", "3 y", "3 0", "-1 1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn of_a_device_with_another_uuid_only_the_record_goes() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("vtax-1-1-1.zram");
        // The kernel makes number 0 itself, where it has zram.
        fs::write(&record, written(0, *b"never written 16")).unwrap();
        assert!(remove(&record));
        assert!(!record.exists());
    }
}
