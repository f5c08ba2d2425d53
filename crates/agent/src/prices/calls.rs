//! Calls that neither wait nor touch files by name.

use std::sync::atomic::AtomicU32;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Whence, getpid, getppid, lseek};
use vtax_sys::calls::clocks::clock_gettime_by_call;
use vtax_sys::calls::processor::cpuid;
use vtax_sys::clock::monotonic_ns;

use crate::prices::calls_unsafe::{fstat, futex_wake, install_handler};
use crate::prices::{Operation, operation};

/// A signal that nothing else here uses.
const SIGNAL: Signal = Signal::SIGUSR2;

pub const TABLE: &[Operation] = &[
    operation("null", "", 1.0, |bench| bench.always(getppid)).structural(),
    operation("clock", "", 0.0, |bench| bench.always(monotonic_ns)),
    operation("clock_call", "", 1.0, |bench| {
        bench.each(|| clock_gettime_by_call(libc::CLOCK_MONOTONIC).ok_or_else(Errno::last))
    }),
    operation("fstat", "", 1.0, |bench| {
        let file = bench.file(1)?;
        bench.each(|| fstat(&file))
    }),
    operation("fstat", "as the C library does", 1.0, |bench| {
        let file = bench.file(1)?;
        bench.each(|| nix::sys::stat::fstat(&file))
    }),
    operation("fcntl", "F_GETFL", 1.0, |bench| {
        let file = bench.file(1)?;
        bench.each(|| fcntl(&file, FcntlArg::F_GETFL))
    }),
    operation("fcntl", "lseek", 1.0, |bench| {
        let file = bench.file(1)?;
        bench.each(|| lseek(&file, 0, Whence::SeekSet))
    }),
    operation("futex", "wakes nobody", 1.0, |bench| {
        let word = AtomicU32::new(0);
        bench.each(|| futex_wake(&word))
    }),
    operation("signal_install", "", 1.0, |bench| {
        bench.each(|| install_handler(SIGNAL))
    }),
    operation("signal_mask", "", 1.0, |bench| {
        let mask = SigSet::thread_get_mask()?;
        bench.each(|| mask.thread_set_mask())
    }),
    // kill and rt_sigreturn.
    operation("signal", "to itself", 2.0, |bench| {
        install_handler(SIGNAL)?;
        let this = getpid();
        bench.each(|| kill(this, SIGNAL))
    }),
    operation("cpuid", "", 0.0, |bench| {
        let none = || std::io::Error::other("this architecture has no CPUID");
        bench.each(|| cpuid(0).ok_or_else(none))
    }),
];
