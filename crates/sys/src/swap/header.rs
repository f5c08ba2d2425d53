//! The first page of a swap device (`union swap_header` of linux/swap.h).

use std::io::{self, Read};

/// Offsets of its fields (version, last page, number of bad pages, UUID) and of its mark at the
/// end.
const FIELDS_OFFSET: usize = 1024;
const UUID_OFFSET: usize = FIELDS_OFFSET + 12;
const MARK: &[u8] = b"SWAPSPACE2";
const VERSION: u32 = 1;
/// The smallest swap area that mkswap(8) makes.
const SMALLEST_PAGES: u64 = 10;

/// The number that identifies a device.
pub type Uuid = [u8; 16];

/// The header page of a device with this many pages.
pub fn header(pages: u64, page_bytes: u64, uuid: Uuid) -> io::Result<Vec<u8>> {
    let too = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("too {what}"));
    if pages < SMALLEST_PAGES {
        return Err(too("small"));
    }
    let last = u32::try_from(pages - 1).map_err(|_| too("large"))?;
    let size = usize::try_from(page_bytes).map_err(|_| too("large"))?;
    let mut header = vec![0; size];
    for (at, value) in [(0, VERSION), (4, last), (8, 0)] {
        let from = FIELDS_OFFSET + at;
        header[from..from + 4].copy_from_slice(&value.to_ne_bytes());
    }
    header[UUID_OFFSET..UUID_OFFSET + 16].copy_from_slice(&uuid);
    header[size - MARK.len()..].copy_from_slice(MARK);
    Ok(header)
}

pub fn uuid(mut device: impl Read) -> io::Result<Uuid> {
    let mut start = [0; UUID_OFFSET + 16];
    device.read_exact(&mut start)?;
    let mut uuid = Uuid::default();
    uuid.copy_from_slice(&start[UUID_OFFSET..]);
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_kernel_reads() {
        let own = *b"0123456789abcdef";
        let header = header(256, 4096, own).unwrap();
        assert_eq!(header.len(), 4096);
        assert_eq!(&header[4086..], MARK);
        let field = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!([field(1024), field(1028), field(1032)], [1, 255, 0]);
        assert!(header[1052..4086].iter().all(|byte| *byte == 0));
        assert_eq!(uuid(&header[..]).unwrap(), own);
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        assert!(header(9, 4096, Uuid::default()).is_err());
        assert!(header(u64::from(u32::MAX) + 2, 4096, Uuid::default()).is_err());
        assert!(uuid(&[0; 100][..]).is_err());
    }
}
