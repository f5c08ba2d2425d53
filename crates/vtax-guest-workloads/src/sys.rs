//! The system calls that need `unsafe`. Nothing here decides anything.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, Pid, fork};

use crate::PAGE_BYTES;
use crate::job::Program;

/// Fresh private memory of whole pages, as 64-bit words.
#[derive(Debug)]
pub struct Region {
    address: NonNull<c_void>,
    bytes: NonZeroUsize,
}

impl Region {
    /// Map memory that the kernel accounts for; its pages are 0 and come when they are touched.
    pub fn map(pages: usize) -> Result<Self, Errno> {
        let bytes = pages.checked_mul(PAGE_BYTES).and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or(Errno::EINVAL)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: without a wanted address no existing mapping is replaced.
        let address = unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_PRIVATE) }?;
        Ok(Self { address, bytes })
    }

    /// Forbid transparent huge pages, or ask for them.
    pub fn set_huge(&mut self, huge: bool) -> Result<(), Errno> {
        self.advise(if huge {
            MmapAdvise::MADV_HUGEPAGE
        } else {
            MmapAdvise::MADV_NOHUGEPAGE
        })
    }

    /// Give all pages back; they are 0 when they are touched again.
    pub fn drop_pages(&mut self) -> Result<(), Errno> {
        self.advise(MmapAdvise::MADV_DONTNEED)
    }

    fn advise(&mut self, advice: MmapAdvise) -> Result<(), Errno> {
        // SAFETY: the mapping is ours and borrowed for writing; the advice at most clears it,
        // and any bytes are valid words.
        unsafe { madvise(self.address, self.bytes.get(), advice) }
    }

    /// Make the memory read-only while `look` reads it.
    ///
    /// When that fails the memory is gone: its protection would be unknown.
    pub fn read_only<T>(self, look: impl FnOnce(&[u64]) -> T) -> Result<(Self, T), Errno> {
        self.protect(ProtFlags::PROT_READ)?;
        let seen = look(self.words());
        self.protect(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        Ok((self, seen))
    }

    fn protect(&self, protection: ProtFlags) -> Result<(), Errno> {
        // SAFETY: the mapping is ours. It stays readable, and `read_only` owns it until it is
        // writable again, so that nobody has a slice to write to.
        unsafe { mprotect(self.address, self.bytes.get(), protection) }
    }

    /// All words.
    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping is readable, page-aligned, as long as said, and any bytes are
        // valid words; it is borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().cast(), self.bytes.get() / 8) }
    }

    /// All words, to be written.
    pub fn words_mut(&mut self) -> &mut [u64] {
        let words = self.bytes.get() / 8;
        // SAFETY: as for `words`, and the mapping is writable and borrowed for writing.
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

/// Start a program with fork and exec; `last` is its last argument.
///
/// `std::process::Command` would use vfork, which does not copy page tables.
pub fn fork_and_exec(program: &Program, last: &std::ffi::CStr) -> Result<Pid, Errno> {
    let arguments = program.arguments.iter().map(|argument| argument.as_ptr());
    let arguments: Vec<_> = arguments.chain([last.as_ptr(), ptr::null()]).collect();
    // SAFETY: the child makes two async-signal-safe calls only and allocates nothing.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // SAFETY: the path and the arguments are live C strings, the list ends with a null
            // pointer; _exit returns to nobody.
            unsafe {
                libc::execv(program.path.as_ptr(), arguments.as_ptr());
                libc::_exit(127)
            }
        }
    }
}

/// Run `work` in a child that dies with this process; its exit code is what `work` returns.
///
/// `work` must not take locks that another thread may hold: printing, for example. The agent has
/// one thread; tests have several.
pub fn fork_and_run(work: impl FnOnce() -> u8) -> Result<Pid, Errno> {
    let parent = nix::unistd::getpid();
    // SAFETY: the child runs `work`, which takes no locks (see above), and leaves by _exit
    // without the destructors and exit handlers of its parent.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).is_ok();
            let code = if tied && nix::unistd::getppid() == parent {
                work()
            } else {
                // The parent died before its death could be announced.
                127
            };
            // SAFETY: returns to nobody.
            unsafe { libc::_exit(c_int::from(code)) }
        }
    }
}

/// Give allocations of this size or more memory of their own, which goes back when they are freed.
///
/// By default the C library does so too, but stops after the first (mallopt(3),
/// `M_MMAP_THRESHOLD`).
pub fn map_allocations_from(bytes: c_int) -> bool {
    // SAFETY: mallopt takes no pointer, and changes only where memory comes from.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) == 1 }
}

static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

extern "C" fn ask_to_end(_signal: c_int) {
    ASKED_TO_END.store(true, Ordering::Relaxed);
}

/// Let SIGINT and SIGTERM end a workload early but in order: it still checks and reports.
///
/// The second one ends the process.
pub fn end_on_signals() -> Result<(), Errno> {
    let flags = SaFlags::SA_RESTART | SaFlags::SA_RESETHAND;
    let action = SigAction::new(SigHandler::Handler(ask_to_end), flags, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic variable.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Has a signal asked to end?
pub fn asked_to_end() -> bool {
    ASKED_TO_END.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;

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
            // SAFETY: not sound on purpose: the kernel must stop it, in a process of its own.
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
