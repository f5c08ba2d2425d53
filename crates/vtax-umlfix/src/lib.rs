//! `LD_PRELOAD` shim for `/usr/bin/linux.uml`: makes user-mode Linux before 6.13 run on CPUs
//! whose FP state is larger than it knows.
//!
//! User-mode Linux keeps the FP state of its processes with `PTRACE_GETREGSET` and
//! `PTRACE_SETREGSET` (`NT_X86_XSTATE`), through a buffer of 2696 bytes. Where the CPU has more
//! (AMX: 11008 bytes), GETREGSET fills what fits, but SETREGSET refuses a state that is not
//! whole (EFAULT), and the kernel panics in `put_fp_registers` at boot. Linux 6.13 sizes the
//! buffer by asking. This shim completes a short state with the process's present one, so that
//! everything in the 2696 bytes is set and the rest stays as it is. Nothing uses the rest: a
//! process must ask its kernel for AMX, and user-mode Linux does not offer it.
//!
//! There is no allocation (user-mode Linux replaces `malloc`) and little stack (its stacks have
//! 16 KiB).

#![cfg_attr(not(test), no_std)]

mod merge;
mod preload_unsafe;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    preload_unsafe::abort()
}
