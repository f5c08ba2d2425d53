//! `LD_PRELOAD` shim for `/usr/bin/linux.uml`: makes user-mode Linux before 6.13 run on CPUs whose
//! FP state is larger than it expects.
//!
//! User-mode Linux keeps the FP state of its processes with `PTRACE_GETREGSET` and
//! `PTRACE_SETREGSET` (`NT_X86_XSTATE`), through a buffer of 2696 bytes. Where the CPU has more
//! (AMX: 11008 bytes), GETREGSET fills what fits, but SETREGSET refuses an incomplete state
//! (EFAULT), and the kernel panics in `put_fp_registers` at boot. Linux 6.13 asks for the size of
//! the buffer. This shim completes a short state from the process's current state, so that
//! everything in the 2696 bytes is set and the rest stays as it is. Nothing uses the rest: a
//! process must request AMX from its kernel, and user-mode Linux does not offer it.
//!
//! The shim does not allocate (user-mode Linux replaces `malloc`) and uses little stack (the stacks
//! have 16 KiB).

// The profile dev unwinds, which takes std; it is used as the profile shim has it, which aborts.
#![cfg_attr(panic = "abort", no_std)]

mod merge;
mod preload_unsafe;

#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    preload_unsafe::abort()
}
