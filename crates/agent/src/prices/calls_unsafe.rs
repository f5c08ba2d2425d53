//! System calls that no safe function makes as they are priced here.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU32;

use nix::errno::Errno;
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;
use vtax_sys::calls::children::Program;

fn done(result: libc::c_long) -> Result<u64, Errno> {
    Errno::result(result).map(|number| u64::try_from(number).unwrap_or(0))
}

/// `fstat` itself: the C library may call `newfstatat` with an empty path.
pub fn fstat(file: impl AsFd) -> Result<u64, Errno> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let number = file.as_fd().as_raw_fd();
    // SAFETY: the kernel writes no more than one stat.
    done(unsafe { libc::syscall(libc::SYS_fstat, number, status.as_mut_ptr()) })
}

/// Bytes of the next entries of a folder that fit in the buffer; 0 at its end.
pub fn getdents(folder: impl AsFd, buffer: &mut [u8]) -> Result<u64, Errno> {
    let number = folder.as_fd().as_raw_fd();
    let (start, bytes) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the kernel writes no more than the buffer's length.
    done(unsafe { libc::syscall(libc::SYS_getdents64, number, start, bytes) })
}

/// Bytes of a link's target that were written to the buffer.
pub fn readlink(path: &CStr, buffer: &mut [u8]) -> Result<u64, Errno> {
    let (start, bytes) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the path is a C string, and the kernel writes no more than the buffer's length.
    done(unsafe { libc::readlink(path.as_ptr(), start.cast(), bytes) as libc::c_long })
}

/// The end of the heap.
pub fn heap_end() -> u64 {
    // SAFETY: an end of 0 is refused, and the kernel answers with the present one.
    done(unsafe { libc::syscall(libc::SYS_brk, 0) }).unwrap_or(0)
}

/// Move the heap's end, which is now at `end`, up by `bytes`, and back: two calls.
///
/// Call it where there is one thread, and nothing was allocated since `end` was found out: what lies
/// beyond it is lost.
pub fn move_heap_end(end: u64, bytes: u64) -> Result<(), Errno> {
    // SAFETY: nobody allocates meanwhile, so that nothing is in the part that comes and goes.
    let [up, down] =
        [end + bytes, end].map(|end| done(unsafe { libc::syscall(libc::SYS_brk, end) }));
    let moved = up? == end + bytes && down? == end;
    moved.then_some(()).ok_or(Errno::ENOMEM)
}

/// Wake one thread that waits on the word.
pub fn futex_wake(word: &AtomicU32) -> Result<u64, Errno> {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel only looks up who waits at the word's address.
    done(unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) })
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Install a handler that does nothing.
pub fn install_handler(signal: Signal) -> Result<SigAction, Errno> {
    let handler = SigHandler::Handler(do_nothing);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(signal, &action) }
}

/// Starts a program as vfork and execve do.
///
/// `posix_spawn` of glibc 2.36 makes 120 more calls, which reset signals.
pub struct Spawn {
    path: CString,
    arguments: Vec<CString>,
    stack: Vec<u8>,
}

impl Spawn {
    /// A program with its last argument; its environment is empty.
    pub fn new(program: Program, last: &CStr) -> Self {
        let mut arguments = program.arguments;
        arguments.push(last.to_owned());
        Self {
            path: program.path,
            arguments,
            stack: vec![0; 64 << 10],
        }
    }

    /// Start it; this thread waits until the program is loaded.
    pub fn start(&mut self) -> Result<Pid, Errno> {
        let arguments = self.arguments.iter().map(|argument| argument.as_ptr());
        let arguments: Vec<_> = arguments.chain([std::ptr::null()]).collect();
        let none = std::ptr::null::<libc::c_char>();
        let run = Box::new(|| {
            // SAFETY: the path and the arguments are live C strings, both lists end with a null
            // pointer; _exit returns to nobody.
            unsafe {
                libc::execve(self.path.as_ptr(), arguments.as_ptr(), &raw const none);
                libc::_exit(127)
            }
        });
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // SAFETY: the child makes these two calls only, on a stack of its own that is large enough;
        // meanwhile this thread stands still.
        unsafe { clone(run, &mut self.stack, flags, Some(libc::SIGCHLD)) }
    }
}
