//! Counters from binary statistics (kernel doc virt/kvm/api.rst, 4.134 `KVM_GET_STATS_FD`).
//!
//! Only the process that made a virtual machine may ask for such a descriptor (others get EIO), but
//! whoever has a copy of the descriptor may read it. QEMU keeps one for each virtual CPU from 8.1
//! on.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use thiserror::Error;

use super::Reading;
use super::guests::Descriptors;
use nix::errno::Errno;
use vtax_sys::calls::descriptors;
use vtax_sys::reason;

/// What the links of statistics descriptors say after `anon_inode:`.
const KINDS: [&str; 2] = ["kvm-vm-stats", "kvm-vcpu-stats"];
/// Statistics of current kernels take about 8 KiB.
const MAX_BYTES: usize = 1 << 20;
/// `struct kvm_stats_desc` without its name.
const DESCRIPTOR_BYTES: usize = 16;
/// `KVM_STATS_TYPE_MASK` and the types of linux/kvm.h that have one value.
const TYPE_MASK: u32 = 0xf;
const CUMULATIVE: u32 = 0;
const INSTANT: u32 = 1;
const PEAK: u32 = 2;

/// Why bytes are not statistics.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum BinaryError {
    /// They end before what an offset or a count promises.
    #[error("the binary statistics end before their {0}")]
    Short(&'static str),
    /// A name is not text.
    #[error("a name in the binary statistics is not text")]
    Name,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistic {
    /// Its name in the kernel.
    pub name: String,
    pub value: u64,
    /// The value is not a running total.
    pub gauge: bool,
}

/// The statistics in the bytes of a descriptor; histograms are left out.
///
/// At most one statistic for each 16 bytes is returned, whatever the header says.
///
/// Fails with `Short` when the bytes end before what the header or a descriptor promises, and with
/// `Name` when a name is not UTF-8.
pub fn parse(bytes: &[u8]) -> Result<Vec<Statistic>, BinaryError> {
    let header = |index: usize| word(bytes, index * 4).ok_or(BinaryError::Short("header"));
    let (name_bytes, count) = (header(1)?, header(2)?);
    let (descriptors, data) = (header(4)?, header(5)?);
    let size = DESCRIPTOR_BYTES.saturating_add(name_bytes);
    let block = piece(bytes, descriptors, count.saturating_mul(size))
        .ok_or(BinaryError::Short("descriptors"))?;
    let data = bytes.get(data..).ok_or(BinaryError::Short("data"))?;
    block
        .chunks_exact(size)
        .filter_map(|descriptor| statistic(descriptor, data).transpose())
        .collect()
}

fn statistic(descriptor: &[u8], data: &[u8]) -> Result<Option<Statistic>, BinaryError> {
    let short = BinaryError::Short("descriptors");
    let flags = array(descriptor, 0).map(u32::from_le_bytes).ok_or(short)?;
    let offset = word(descriptor, 8).ok_or(short)?;
    let gauge = match flags & TYPE_MASK {
        CUMULATIVE => false,
        INSTANT | PEAK => true,
        _ => return Ok(None),
    };
    let name = descriptor.get(DESCRIPTOR_BYTES..).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| BinaryError::Name)?;
    let value = array(data, offset).map(u64::from_le_bytes);
    Ok(Some(Statistic {
        name: name.to_owned(),
        value: value.ok_or(BinaryError::Short("data"))?,
        gauge,
    }))
}

/// An offset or count, which is a `__u32`.
fn word(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(array(bytes, at)?)).ok()
}

fn array<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<[u8; SIZE]> {
    piece(bytes, at, SIZE)?.try_into().ok()
}

fn piece(bytes: &[u8], at: usize, size: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(size)?)
}

/// The counters of every process; the error is the reason why a process has none.
pub(super) fn guests(
    running: &BTreeMap<i32, Descriptors>,
) -> Result<BTreeMap<i32, Reading>, String> {
    let read = |(pid, descriptors): (&i32, &Descriptors)| Ok((*pid, guest(*pid, descriptors)?));
    running.iter().map(read).collect()
}

fn copy_of_descriptor(pid: i32, number: i32) -> Result<OwnedFd, Errno> {
    let process = descriptors::pidfd_open(pid)?;
    descriptors::pidfd_getfd(process.as_fd(), number)
}

fn guest(pid: i32, descriptors: &Descriptors) -> Result<Reading, String> {
    let mut reading = Reading::default();
    let is_of_statistics = |kind: &str| {
        let (kind, _) = kind.split_once(':').unwrap_or((kind, ""));
        KINDS.contains(&kind)
    };
    for (number, _) in descriptors
        .iter()
        .filter(|(_, kind)| is_of_statistics(kind))
    {
        let copy = copy_of_descriptor(pid, *number)
            .map_err(|errno| format!("descriptor {number} of process {pid}: {}", errno.desc()))?;
        let bytes = whole(&copy.into())
            .map_err(|error| format!("statistics of process {pid}: {}", reason(&error)))?;
        let statistics = parse(&bytes).map_err(|error| format!("process {pid}: {error}"))?;
        for statistic in statistics {
            reading.add(&statistic.name, statistic.value, statistic.gauge);
        }
    }
    if reading.values.is_empty() {
        return Err(format!(
            "process {pid} holds no descriptor of its statistics (QEMU before 8.1 does not)"
        ));
    }
    Ok(reading)
}

/// The whole file, without moving the position, which the owner of the descriptor shares.
fn whole(file: &File) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64)? {
            0 => break,
            count => length += count,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME_BYTES: u32 = 48;

    /// Statistics as the kernel lays them out: header, id, descriptors, data.
    fn encoded(statistics: &[(&str, u32, u16, u64)]) -> Vec<u8> {
        let count = u32::try_from(statistics.len()).unwrap();
        let data = 24 + NAME_BYTES + count * (16 + NAME_BYTES);
        let mut bytes = Vec::new();
        for word in [0, NAME_BYTES, count, 24, 24 + NAME_BYTES, data] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([b'k'; NAME_BYTES as usize]);
        let mut values: Vec<u8> = Vec::new();
        for (name, flags, size, value) in statistics {
            bytes.extend(flags.to_le_bytes());
            bytes.extend(0_i16.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend(u32::try_from(values.len()).unwrap().to_le_bytes());
            bytes.extend(0_u32.to_le_bytes());
            let mut name = name.as_bytes().to_vec();
            name.resize(NAME_BYTES as usize, 0);
            bytes.extend(name);
            (0..*size).for_each(|_| values.extend(value.to_le_bytes()));
        }
        bytes.extend(values);
        bytes
    }

    fn example() -> Vec<u8> {
        encoded(&[
            ("exits", 0, 1, 7),
            ("halt_wait_hist", 4, 32, 1),
            ("pages_4k", 1, 1, 1 << 40),
            ("max_mmu_rmap_size", 2, 1, 3),
        ])
    }

    #[test]
    fn values_types_and_histograms() {
        let statistics = parse(&example()).unwrap();
        let found: Vec<_> = statistics
            .iter()
            .map(|one| (one.name.as_str(), one.value, one.gauge))
            .collect();
        let expected = [
            ("exits", 7, false),
            ("pages_4k", 1 << 40, true),
            ("max_mmu_rmap_size", 3, true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_ends_early_says_where() {
        let whole = example();
        for (length, part) in [
            (0, "header"),
            (23, "header"),
            (24, "descriptors"),
            (300, "descriptors"),
        ] {
            assert_eq!(parse(&whole[..length]), Err(BinaryError::Short(part)));
        }
        assert_eq!(
            parse(&whole[..whole.len() - 1]),
            Err(BinaryError::Short("data"))
        );
        let mut endless = whole;
        endless[4..12].fill(0xff);
        assert_eq!(parse(&endless), Err(BinaryError::Short("descriptors")));
    }

    proptest! {
        #[test]
        fn any_bytes_give_statistics_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(statistics) = parse(&bytes) {
                prop_assert!(statistics.len() <= bytes.len() / DESCRIPTOR_BYTES);
            }
        }

        #[test]
        fn mutated_and_truncated_statistics_are_bounded(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
            length in any::<proptest::sample::Index>(),
        ) {
            let mut bytes = example();
            for (index, value) in changes {
                let index = index.index(bytes.len());
                bytes[index] = value;
            }
            bytes.truncate(length.index(bytes.len() + 1));
            if let Ok(statistics) = parse(&bytes) {
                prop_assert!(statistics.len() <= bytes.len() / DESCRIPTOR_BYTES);
            }
        }
    }
}
