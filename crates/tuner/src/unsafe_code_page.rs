//! Memory that holds machine code: written first, then executable, never both.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::error::Error;

/// Machine code in its own pages, which can be read and executed.
#[derive(Debug)]
pub struct CodePage {
    address: NonNull<c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: the pages are never written after they are made.
unsafe impl Send for CodePage {}
// SAFETY: as above.
unsafe impl Sync for CodePage {}

impl CodePage {
    /// Copy position-independent code into fresh pages, and make them executable.
    pub fn new(code: &[u8]) -> Result<Self, Error> {
        let failed = |errno| Error::Memory {
            what: "machine code",
            errno,
        };
        let bytes = NonZeroUsize::new(code.len()).unwrap_or(NonZeroUsize::MIN);
        let write = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: without a wanted address no existing mapping is replaced.
        let address = unsafe { mmap_anonymous(None, bytes, write, MapFlags::MAP_PRIVATE) };
        let page = Self {
            address: address.map_err(failed)?,
            bytes,
        };
        // SAFETY: the mapping is fresh, ours, writable and at least as long as the code.
        unsafe {
            page.start()
                .copy_from_nonoverlapping(code.as_ptr(), code.len());
        };
        let execute = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
        // SAFETY: the mapping is ours, and no reference into it exists.
        unsafe { mprotect(page.address, bytes.get(), execute) }.map_err(failed)?;
        Ok(page)
    }

    /// The first instruction.
    pub fn start(&self) -> *mut u8 {
        self.address.as_ptr().cast()
    }
}

impl Drop for CodePage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; a caller of the code borrows it during the call.
        let _ = unsafe { munmap(self.address, self.bytes.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_code_are_executable_and_not_writable() {
        let page = CodePage::new(&[0xc3]).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = page.start() as usize;
        let inside = |line: &&str| {
            let (from, to) = line
                .split(' ')
                .next()
                .unwrap_or("")
                .split_once('-')
                .unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(from)..number(to)).contains(&start)
        };
        let line = maps.lines().find(inside).unwrap();
        assert!(line.contains(" r-xp "), "{line}");
    }
}
