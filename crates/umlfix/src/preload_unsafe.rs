//! The `ptrace` that user-mode Linux gets: everything that needs `unsafe`.

#![allow(unsafe_code)]

use core::arch::x86_64::{__cpuid_count, _xgetbv};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::ptr;

use crate::merge::{self, EMPTY, Extent, Layout};

// From linux/ptrace.h and linux/elf.h; the same on every x86-64.
const PTRACE_PEEKTEXT: c_long = 1;
const PTRACE_PEEKUSER: c_long = 3;
const PTRACE_GETREGSET: c_long = 0x4204;
const PTRACE_SETREGSET: c_long = 0x4205;
const NT_X86_XSTATE: usize = 0x202;
/// CPUID leaf of the extended state; sub-leaf 1 and the components' sub-leaves follow.
const XSTATE_LEAF: u32 = 0xd;

/// Larger than any CPU's state (11008 bytes with AMX); the kernel says how much it filled, and a
/// larger state is passed through unchanged.
const AREA_BYTES: usize = 1 << 16;

/// What is kept between calls: room for a whole state, and where its components lie.
///
/// The layout is read once: CPUID causes a VM exit, which costs as much as a hundred system calls,
/// and states are set at every context switch of the guest.
#[repr(C, align(64))]
struct Kept {
    area: [u8; AREA_BYTES],
    layout: Option<Layout>,
}

struct Static(UnsafeCell<Kept>);

// SAFETY: only `set_short_state` uses it. User-mode Linux restores registers only from its one
// kernel thread, never from helper threads, and its timer signals do not make that thread switch
// there.
unsafe impl Sync for Static {}

/// Static, because user-mode Linux's stacks are too small for the area.
static KEPT: Static = Static(UnsafeCell::new(Kept {
    area: [0; AREA_BYTES],
    layout: None,
}));

/// `ptrace` as in the C library, except for FP states that are set too short.
///
/// The C prototype is variadic; on x86-64 (System V) four arguments of a variadic function lie
/// in the same registers as four fixed ones.
///
/// # Safety
/// As for ptrace(2).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ptrace(
    request: c_long,
    process: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    // The request is an int in C; the upper half of its register is not defined.
    let request = c_long::from((request & 0xffff_ffff) as c_int);
    match request {
        // SAFETY: the caller guarantees the arguments.
        PTRACE_PEEKTEXT..=PTRACE_PEEKUSER => unsafe { peek(request, process, address) },
        PTRACE_SETREGSET if address.addr() == NT_X86_XSTATE && !data.is_null() => {
            // SAFETY: the data of a SETREGSET is an iovec.
            unsafe { set_short_state(process, address, data.cast()) }
        }
        // SAFETY: the caller guarantees the arguments.
        _ => unsafe { system_call(request, process, address, data) },
    }
}

/// End the program. Nothing in this crate panics, but the compiler requires a handler.
#[cfg(panic = "abort")]
pub fn abort() -> ! {
    // SAFETY: abort has no conditions.
    unsafe { libc::abort() }
}

/// The kernel's own call; sets errno and returns -1 on failure.
unsafe fn system_call(
    request: c_long,
    process: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    // SAFETY: the caller meets ptrace's conditions.
    unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            request,
            c_long::from(process),
            address,
            data,
        )
    }
}

/// The kernel stores the word that it read; the C library returns it, with errno 0.
unsafe fn peek(request: c_long, process: c_int, address: *mut c_void) -> c_long {
    let mut word: c_long = 0;
    // SAFETY: the word is live while the kernel writes it.
    let result = unsafe { system_call(request, process, address, (&raw mut word).cast()) };
    if result < 0 {
        return result;
    }
    // SAFETY: the C library's pointer to this thread's errno is always valid.
    unsafe { *libc::__errno_location() = 0 };
    word
}

/// Set the state in `given`, completed from the current state if it is short.
unsafe fn set_short_state(process: c_int, kind: *mut c_void, given: *mut libc::iovec) -> c_long {
    // SAFETY: see `Static`: there is no second use at the same time.
    let Kept { area, layout } = unsafe { &mut *KEPT.0.get() };
    let layout = layout.get_or_insert_with(layout_of_this_cpu);
    let mut whole = libc::iovec {
        iov_base: area.as_mut_ptr().cast(),
        iov_len: AREA_BYTES,
    };
    // SAFETY: the iovec points to the area and has its length.
    let got = unsafe { system_call(PTRACE_GETREGSET, process, kind, (&raw mut whole).cast()) };
    // SAFETY: the caller's iovec is live, and its bytes are readable; they are not the area.
    let short = unsafe {
        let given = ptr::read(given);
        core::slice::from_raw_parts(given.iov_base.cast::<u8>(), given.iov_len.min(AREA_BYTES))
    };
    let completed = got == 0
        && whole.iov_len < AREA_BYTES
        && short.len() < whole.iov_len
        && area
            .get_mut(..whole.iov_len)
            .is_some_and(|all| merge::complete(all, short, layout));
    let state = if completed { &raw mut whole } else { given };
    // SAFETY: the data is either the completed state in the area, or what the caller passed.
    unsafe { system_call(PTRACE_SETREGSET, process, kind, state.cast()) }
}

/// Where the CPU puts the components that the kernel has switched on (XCR0).
fn layout_of_this_cpu() -> Layout {
    let enabled = enabled();
    let mut layout = EMPTY;
    for (component, extent) in (0_u32..).zip(&mut layout).skip(2) {
        if enabled & (1 << component) != 0 {
            #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
            // SAFETY: the leaf exists where the kernel has XSAVE on, as `enabled` found.
            let answer = unsafe { __cpuid_count(XSTATE_LEAF, component) };
            *extent = Extent {
                offset: answer.ebx as usize,
                size: answer.eax as usize,
            };
        }
    }
    layout
}

/// XCR0, or 0 where the kernel does not use XSAVE.
fn enabled() -> u64 {
    const OSXSAVE: u32 = 1 << 27;
    #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
    // SAFETY: every x86-64 CPU has leaf 1.
    let features = unsafe { __cpuid_count(1, 0) };
    if features.ecx & OSXSAVE == 0 {
        return 0;
    }
    // SAFETY: OSXSAVE says that XGETBV may be used.
    unsafe { xcr0() }
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: register 0 exists wherever XGETBV does.
    unsafe { _xgetbv(0) }
}

#[cfg(test)]
mod tests;
