//! Calls that neither wait nor touch files by name.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Whence, getpid, getppid, lseek};
use vtax_sys::calls::clocks::clock_gettime_by_call;
use vtax_sys::calls::processor::cpuid;
use vtax_sys::clock::monotonic_ns;

use crate::prices::calls_unsafe::{fstat, futex_wake, install_handler};
use crate::prices::compute::mixed;
use crate::prices::measure::{Bench, Price};
use crate::prices::{Operation, operation};

/// A signal that nothing else here uses.
const SIGNAL: Signal = Signal::SIGUSR2;
/// Readings of the clock, of which the fastest pair is taken off.
const READINGS: u32 = 11;
/// `IA32_TIME_STAMP_COUNTER` (Intel SDM volume 4, table 2-2).
const TIME_STAMP_COUNTER: u64 = 0x10;
/// Firmware tells its progress there; Linux itself writes to it to wait (`native_io_delay`).
const DIAGNOSTIC_PORT: u64 = 0x80;

pub const TABLE: &[Operation] = &[
    operation("null", "", 1.0, |bench| bench.always(getppid)).structural(),
    // The size is the time of the other work, in nanoseconds.
    operation("late_call", "after no other work", 1.0, |bench| {
        late(bench, 0)
    }),
    operation("late_call", "after a little other work", 1.0, |bench| {
        late(bench, 1)
    }),
    operation("late_call", "after other work", 1.0, |bench| late(bench, 4)),
    operation("late_call", "after much other work", 1.0, |bench| {
        late(bench, 16)
    }),
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
        let none = || io::Error::other("this architecture has no CPUID");
        bench.each(|| cpuid(0).ok_or_else(none))
    }),
    // What the kernel does for one call here is a VM exit where a hypervisor intercepts it.
    operation("msr", "read of the time stamp counter", 1.0, |bench| {
        let cpu = bench.cpu()?;
        device(bench, &format!("/dev/cpu/{cpu}/msr"), TIME_STAMP_COUNTER, 8)
    }),
    operation("pio", "read of port 0x80", 1.0, |bench| {
        device(bench, "/dev/port", DIAGNOSTIC_PORT, 1)
    }),
];

/// Read from a device that stands for registers of the processor.
fn device(bench: &Bench, path: &str, at: u64, bytes: usize) -> io::Result<Price> {
    let reason =
        |error: io::Error| io::Error::other(format!("{path}: {}", vtax_sys::reason(&error)));
    let device = File::open(path).map_err(reason)?;
    let mut value = vec![0; bytes];
    bench.each(|| device.read_exact_at(&mut value, at).map_err(reason))
}

/// An empty call after work in user mode. It finds caches that others have filled, and threads of
/// the environment that went to sleep.
fn late(bench: &Bench, units: u32) -> io::Result<Price> {
    let (mut work_ns, mut calls) = (0, 0);
    let price = bench.measure(|watch, count| {
        let empty_ns = (0..READINGS).map(|_| monotonic_ns().abs_diff(monotonic_ns()));
        let empty_ns = empty_ns.min().unwrap_or(0);
        for _ in 0..count {
            let begin = monotonic_ns();
            (0..units).for_each(mixed);
            let middle = monotonic_ns();
            black_box(getppid());
            let end = monotonic_ns();
            work_ns += middle.saturating_sub(begin);
            watch.ns += end.saturating_sub(middle).saturating_sub(empty_ns);
        }
        calls += count;
        Ok(count)
    })?;
    Ok(price.of(work_ns / calls))
}
