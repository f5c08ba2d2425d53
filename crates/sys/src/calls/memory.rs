//! Mapped memory: shared with another side, or fresh.

use std::ffi::{c_int, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{
    MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};
use nix::unistd::{SysconfVar, sysconf};

/// Bytes of a page: the only page size of x86-64 besides huge pages.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a page of this kernel: on arm64 some kernels have larger pages.
pub fn page_bytes() -> u64 {
    let found = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    found
        .and_then(|bytes| u64::try_from(bytes).ok())
        .unwrap_or(PAGE_BYTES as u64)
}

/// Have the kernel back memory of another process with huge pages now (madvise(2), `MADV_COLLAPSE`).
///
/// `start` is an address in that process. Contents stay as they are. Fails with the errno of the
/// system call: `EINVAL` where nothing is mapped, where the mapping cannot have huge pages, and before
/// Linux 6.1.
pub fn collapse(process: BorrowedFd<'_>, start: u64, bytes: u64) -> Result<(), Errno> {
    const COLLAPSE: c_int = 25;
    let narrow = |number: u64| usize::try_from(number).map_err(|_| Errno::EINVAL);
    let range = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(narrow(start)?),
        iov_len: narrow(bytes)?,
    };
    let (fd, count, flags) = (process.as_raw_fd(), 1_usize, 0_u32);
    // SAFETY: the kernel reads one range during the call. It moves the other process's pages, and
    // changes no byte of them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            fd,
            &raw const range,
            count,
            COLLAPSE,
            flags,
        )
    };
    Errno::result(done).map(drop)
}

/// Memory shared with the kernel or with another process.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u64>,
    words: usize,
}

impl Mapping {
    /// Map `words` words of 64 bits; a writable mapping is shared with the other side.
    ///
    /// Fails with the errno of the system call.
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

    /// Read a word; 0 beyond the end.
    pub fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).map_or(0, |word| word.load(order))
    }

    /// Write a word of a writable mapping; does nothing beyond the end.
    pub fn store(&self, word: usize, value: u64, order: Ordering) {
        if let Some(word) = self.word(word) {
            word.store(value, order);
        }
    }

    /// Set bits of a word of a writable mapping; does nothing beyond the end.
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
            // SAFETY: inside the mapping, aligned as the page is, and alive as long as `self`; the
            // other side writes words, so they are accessed only as atomics.
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

// SAFETY: the memory is accessed only as atomics.
unsafe impl Send for Mapping {}
// SAFETY: the same, from several threads at once.
unsafe impl Sync for Mapping {}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// Private memory of whole pages, fresh or of a file, as 64-bit words.
#[derive(Debug)]
pub struct Region {
    address: NonNull<c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: the mapping is owned like a `Box<[u64]>` and is not tied to any thread.
unsafe impl Send for Region {}

impl Region {
    /// Map memory that the kernel accounts for; its pages are zero and are allocated when they are
    /// touched.
    ///
    /// Fails with the errno of the system call.
    pub fn map(pages: usize) -> Result<Self, Errno> {
        let bytes = pages.checked_mul(PAGE_BYTES).and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or(Errno::EINVAL)?;
        // SAFETY: without a wanted address no existing mapping is replaced.
        let address = unsafe { mmap_anonymous(None, bytes, READ_WRITE, MapFlags::MAP_PRIVATE) }?;
        Ok(Self { address, bytes })
    }

    /// Map the first pages of a file, which must have them; a page that is written becomes a copy.
    ///
    /// Nobody else may change the file meanwhile. Fails with the errno of the system call.
    pub fn map_private(file: impl AsFd, pages: usize) -> Result<Self, Errno> {
        let bytes = pages.checked_mul(PAGE_BYTES).and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or(Errno::EINVAL)?;
        // SAFETY: as for `map`; the caller keeps the file as it is.
        let address = unsafe { mmap(None, bytes, READ_WRITE, MapFlags::MAP_PRIVATE, file, 0) }?;
        Ok(Self { address, bytes })
    }

    /// Forbid transparent huge pages, or ask for them.
    ///
    /// Fails with the errno of the system call.
    pub fn set_huge(&mut self, huge: bool) -> Result<(), Errno> {
        self.advise(if huge {
            MmapAdvise::MADV_HUGEPAGE
        } else {
            MmapAdvise::MADV_NOHUGEPAGE
        })
    }

    /// Give all pages back; they are zero when they are touched again.
    ///
    /// Fails with the errno of the system call.
    pub fn drop_pages(&mut self) -> Result<(), Errno> {
        self.advise(MmapAdvise::MADV_DONTNEED)
    }

    fn advise(&mut self, advice: MmapAdvise) -> Result<(), Errno> {
        // SAFETY: the mapping is ours and borrowed mutably; the advice at most clears it, and any
        // bytes are valid words.
        unsafe { madvise(self.address, self.bytes.get(), advice) }
    }

    /// Make the memory read-only while `look` reads it.
    ///
    /// When that fails the memory is unmapped: its protection would be unknown.
    pub fn read_only<T>(self, look: impl FnOnce(&[u64]) -> T) -> Result<(Self, T), Errno> {
        self.protect(ProtFlags::PROT_READ)?;
        let seen = look(self.words());
        self.protect(READ_WRITE)?;
        Ok((self, seen))
    }

    fn protect(&self, protection: ProtFlags) -> Result<(), Errno> {
        // SAFETY: the mapping is ours. It stays readable, and `read_only` owns it until it is
        // writable again, so that nobody has a slice to write to.
        unsafe { mprotect(self.address, self.bytes.get(), protection) }
    }

    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping is readable, page-aligned, as long as stated, and any bytes are valid
        // words; it is borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().cast(), self.bytes.get() / 8) }
    }

    /// All words, for writing.
    pub fn words_mut(&mut self) -> &mut [u64] {
        let words = self.bytes.get() / 8;
        // SAFETY: as for `words`, and the mapping is writable and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().cast(), words) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives it. Unmapping a whole mapping
        // fails only for wrong arguments.
        let _ = unsafe { munmap(self.address, self.bytes.get()) };
    }
}

/// Give allocations of at least this size their own mapping, which is unmapped when they are freed.
///
/// The C library does so by default, but stops after the first such free (mallopt(3),
/// `M_MMAP_THRESHOLD`).
pub fn map_allocations_from(bytes: c_int) -> bool {
    // SAFETY: mallopt takes no pointer, and changes only where memory comes from.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) == 1 }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::calls::children::fork_and_run;

    #[test]
    fn dropped_pages_are_zero_again() {
        let mut region = Region::map(3).unwrap();
        assert_eq!(region.words().len(), 3 * 512);
        region.words_mut().fill(7);
        region.drop_pages().unwrap();
        assert!(region.words().iter().all(|word| *word == 0));
    }

    #[test]
    fn read_only_memory_is_readable_and_then_writable() {
        let mut region = Region::map(1).unwrap();
        region.words_mut()[5] = 9;
        let (mut region, seen) = region.read_only(|words| words[5]).unwrap();
        region.words_mut()[5] += seen;
        assert_eq!(region.words()[5], 18);
    }

    #[test]
    fn a_write_to_read_only_memory_ends_the_writer() {
        let region = Region::map(1).unwrap();
        let child = fork_and_run(|| {
            let _ = region.protect(ProtFlags::PROT_READ);
            // SAFETY: deliberately unsound: the kernel must stop it, in a separate process.
            unsafe { region.address.cast::<u64>().write_volatile(1) };
            0
        })
        .unwrap();
        let end = waitpid(child, None).unwrap();
        assert!(
            matches!(end, WaitStatus::Signaled(_, Signal::SIGSEGV, _)),
            "{end:?}"
        );
    }

    #[test]
    fn no_memory_at_all_is_an_error() {
        assert!(Region::map(0).is_err());
        assert!(Region::map(usize::MAX / 2).is_err());
    }
}
