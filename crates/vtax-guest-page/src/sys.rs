//! Shared memory and the time stamp counter: what needs `unsafe`. Nothing here decides anything.

#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Memory shared with the kernel or with another process.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u64>,
    words: usize,
}

impl Mapping {
    /// Map `words` words of 64 bits; a mapping that is written is shared with the other side.
    pub fn new(file: impl AsFd, words: usize, writable: bool) -> Result<Self, Errno> {
        let bytes = words.checked_mul(8).and_then(NonZeroUsize::new);
        let mut protection = ProtFlags::PROT_READ;
        protection.set(ProtFlags::PROT_WRITE, writable);
        // SAFETY: a new mapping at an address that the kernel chooses; it aliases no Rust value.
        let start = unsafe {
            mmap(
                None,
                bytes.ok_or(Errno::EINVAL)?,
                protection,
                MapFlags::MAP_SHARED,
                file,
                0,
            )?
        };
        Ok(Self {
            start: start.cast(),
            words,
        })
    }

    /// A word; 0 beyond the end.
    pub fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).map_or(0, |word| word.load(order))
    }

    /// Write a word of a writable mapping; nothing beyond the end.
    pub fn store(&self, word: usize, value: u64, order: Ordering) {
        if let Some(word) = self.word(word) {
            word.store(value, order);
        }
    }

    /// Set bits of a word of a writable mapping; nothing beyond the end.
    pub fn set_bits(&self, word: usize, bits: u64) {
        if let Some(word) = self.word(word) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Append `count` words from `word` on to `target`.
    pub fn copy(&self, word: usize, count: usize, target: &mut Vec<u64>) {
        target
            .extend((word..word.saturating_add(count)).map(|at| self.load(at, Ordering::Relaxed)));
    }

    fn word(&self, word: usize) -> Option<&AtomicU64> {
        (word < self.words).then(|| {
            // SAFETY: inside the mapping, aligned as the page is, and alive as long as `self`;
            // the other side writes words, so they are only touched as atomics.
            unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(word)) }
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.start.cast(), self.words * 8) };
    }
}

// SAFETY: the memory is only touched as atomics.
unsafe impl Send for Mapping {}
// SAFETY: the same, from several threads at once.
unsafe impl Sync for Mapping {}

/// The time stamp counter.
pub fn time_stamp_counter() -> u64 {
    // SAFETY: the instruction is in every processor that this program is compiled for.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Try to lock an open file (flock(2)); the lock ends with the descriptor.
pub fn try_lock(file: impl AsFd) -> Result<(), Errno> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the call takes two numbers.
    Errno::result(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}
