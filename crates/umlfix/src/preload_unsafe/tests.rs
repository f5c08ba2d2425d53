//! The shim against a real traced process.

use std::io;

use super::{NT_X86_XSTATE, PTRACE_GETREGSET, PTRACE_SETREGSET};
use super::{enabled, layout_of_this_cpu, ptrace, system_call};
use crate::merge::{Extent, HEADER_END};

/// The bytes that user-mode Linux uses: everything up to PKRU.
const SHORT_BYTES: usize = 2696;
/// Where xmm0 lies in the legacy region.
const XMM0: std::ops::Range<usize> = 160..176;

/// A child that stops itself at once; killed when this is dropped.
struct Traced(libc::pid_t);

impl Traced {
    fn start() -> io::Result<Self> {
        // SAFETY: the child only makes system calls before it is stopped, and never goes on.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: plain system calls with numbers.
                unsafe {
                    libc::syscall(
                        libc::SYS_ptrace,
                        libc::c_long::from(libc::PTRACE_TRACEME),
                        0,
                        0,
                        0,
                    );
                    libc::raise(libc::SIGSTOP);
                    libc::_exit(0)
                }
            }
            _ => {
                // SAFETY: the call stores no status.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WUNTRACED) };
                Ok(Self(child))
            }
        }
    }

    fn state(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let filled = self.transfer(PTRACE_GETREGSET, &mut bytes).unwrap();
        bytes.truncate(filled);
        bytes
    }

    fn transfer(&self, request: libc::c_long, bytes: &mut [u8]) -> io::Result<usize> {
        let mut vector = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let kind = std::ptr::without_provenance_mut(NT_X86_XSTATE);
        // SAFETY: the vector points to live bytes.
        let result = unsafe { ptrace(request, self.0, kind, (&raw mut vector).cast()) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(vector.iov_len)
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // SAFETY: plain system calls on our own child.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn a_short_state_can_be_set() {
    let child = match Traced::start() {
        Ok(child) => child,
        Err(error) => return println!("skipped: no traced child here: {error}"),
    };
    let before = child.state(1 << 16);
    if before.len() <= SHORT_BYTES {
        println!("the state of this CPU is not larger than {SHORT_BYTES} bytes: passed through");
    }
    let mut short = child.state(SHORT_BYTES);
    short[XMM0].copy_from_slice(&[0x5a; 16]);
    // SSE is no longer in its initial state.
    short[512] |= 2;
    child.transfer(PTRACE_SETREGSET, &mut short).unwrap();
    let after = child.state(1 << 16);
    assert_eq!(after.len(), before.len());
    assert_eq!(after[XMM0], [0x5a; 16]);
    assert_eq!(after[short.len()..], before[short.len()..]);
}

#[test]
fn words_are_peeked_as_the_c_library_does() {
    static WORD: libc::c_long = -1;
    let child = match Traced::start() {
        Ok(child) => child,
        Err(error) => return println!("skipped: no traced child here: {error}"),
    };
    let address = (&raw const WORD).cast_mut().cast();
    // SAFETY: the address is read only in the child, where it is the same.
    let word = unsafe {
        ptrace(
            super::PTRACE_PEEKTEXT,
            child.0,
            address,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(
        (word, io::Error::last_os_error().raw_os_error()),
        (-1, Some(0))
    );
    // SAFETY: as above; the kernel refuses address 8.
    let word = unsafe {
        let nowhere = std::ptr::without_provenance_mut(8);
        ptrace(
            super::PTRACE_PEEKTEXT,
            child.0,
            nowhere,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(word, -1);
    assert_ne!(io::Error::last_os_error().raw_os_error(), Some(0));
}

#[test]
fn other_requests_pass_through() {
    // SAFETY: detaching from a process that is not traced fails without an effect.
    let (through, direct) = unsafe {
        let none = std::ptr::null_mut();
        (ptrace(17, 1, none, none), system_call(17, 1, none, none))
    };
    assert_eq!((through, direct), (-1, -1));
}

#[test]
fn components_do_not_overlap_the_header() {
    assert!(enabled() & 3 == 3 || enabled() == 0);
    for Extent { offset, size } in layout_of_this_cpu() {
        assert!(size == 0 || offset >= HEADER_END, "{offset} {size}");
    }
}
