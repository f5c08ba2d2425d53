//! Turning swap devices on and off.

use std::ffi::CStr;

use nix::errno::Errno;

/// `SWAP_FLAG_PREFER` and `SWAP_FLAG_PRIO_MASK` of linux/swap.h, which libc lacks.
const PREFER: libc::c_int = 0x8000;
const HIGHEST_PRIORITY: libc::c_int = 0x7fff;

/// Use a file with a swap header before every other swap device (swapon(2)).
///
/// Fails with the errno of the system call.
pub fn on(path: &CStr) -> Result<(), Errno> {
    // Pages go to the device under measurement, not to another.
    let flags = PREFER | HIGHEST_PRIORITY;
    // SAFETY: the path is a live C string.
    Errno::result(unsafe { libc::swapon(path.as_ptr(), flags) }).map(drop)
}

/// Bring what is in the swap device back to memory, and stop using the device (swapoff(2)).
///
/// Fails with the errno of the system call.
pub fn off(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path is a live C string.
    Errno::result(unsafe { libc::swapoff(path.as_ptr()) }).map(drop)
}
