//! The one call of libbpf that needs `unsafe`.

#![allow(unsafe_code)]

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use vtax_sys::calls::descriptors;

/// Ask the kernel to measure how long eBPF programs run, until the descriptor is closed.
///
/// Fails with the errno of the system call.
pub fn enable_program_statistics() -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes a number.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    Errno::result(fd).map(descriptors::own)
}
