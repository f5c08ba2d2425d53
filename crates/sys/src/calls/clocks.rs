//! Reading clocks for which nix has no call, and reading past the vDSO.
//!
//! Each function returns `None` where the call fails.

use std::mem::MaybeUninit;

const NS_PER_S: u64 = 1_000_000_000;

unsafe extern "C" {
    // A function of the C library that the libc crate leaves out.
    fn clock() -> libc::clock_t;
}

/// A clock's number, as `clock_gettime` takes it.
pub type ClockNumber = libc::clockid_t;

/// `clock_gettime` as a system call, in nanoseconds: never through the vDSO.
#[inline]
pub fn clock_gettime_by_call(clock: ClockNumber) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes no more than one timespec.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time.as_mut_ptr()) };
    // SAFETY: zeroed is a valid timespec.
    let time = unsafe { time.assume_init() };
    (result == 0).then(|| nanoseconds(time.tv_sec, time.tv_nsec))
}

/// `gettimeofday` of the C library, in nanoseconds.
#[inline]
pub fn gettimeofday() -> Option<u64> {
    // SAFETY: the C library writes no more than one timeval.
    time_of_day(|time| i64::from(unsafe { libc::gettimeofday(time, std::ptr::null_mut()) }))
}

/// `gettimeofday` as a system call, in nanoseconds.
#[inline]
pub fn gettimeofday_by_call() -> Option<u64> {
    let zone = std::ptr::null_mut::<libc::timezone>();
    // SAFETY: the kernel writes no more than one timeval.
    time_of_day(|time| unsafe { libc::syscall(libc::SYS_gettimeofday, time, zone) })
}

#[inline]
fn time_of_day(call: impl FnOnce(*mut libc::timeval) -> i64) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timeval>::zeroed();
    let result = call(time.as_mut_ptr());
    // SAFETY: zeroed is a valid timeval.
    let time = unsafe { time.assume_init() };
    (result == 0).then(|| nanoseconds(time.tv_sec, time.tv_usec * 1_000))
}

/// `clock()` of the C library, this process's CPU time in nanoseconds.
#[inline]
pub fn cpu_clock() -> Option<u64> {
    // POSIX fixes CLOCKS_PER_SEC at a million.
    const NS_PER_CLOCK: u64 = 1_000;
    // SAFETY: the call takes no argument.
    let clocks = unsafe { clock() };
    u64::try_from(clocks)
        .ok()
        .map(|clocks| clocks * NS_PER_CLOCK)
}

/// CPU time of this process by `times`, in clock ticks.
#[inline]
pub fn times() -> Option<u64> {
    let mut used = MaybeUninit::<libc::tms>::zeroed();
    // SAFETY: the call writes no more than one tms.
    let result = unsafe { libc::times(used.as_mut_ptr()) };
    // SAFETY: zeroed is a valid tms.
    let used = unsafe { used.assume_init() };
    // The C library passes the kernel's negative errno on as a time.
    let known = result >= 0;
    known.then(|| u64::try_from(used.tms_utime + used.tms_stime).unwrap_or(0))
}

#[inline]
fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let unsigned = |number| u64::try_from(number).unwrap_or(0);
    unsigned(seconds) * NS_PER_S + unsigned(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_tell_the_same_time() {
        let before = gettimeofday().unwrap();
        let by_call = gettimeofday_by_call().unwrap();
        let realtime = clock_gettime_by_call(libc::CLOCK_REALTIME).unwrap();
        // Whatever this machine does meanwhile, both clocks show the same year.
        assert!(by_call.abs_diff(before) < 3600 * NS_PER_S);
        assert!(realtime.abs_diff(by_call) < 3600 * NS_PER_S);
    }

    #[test]
    fn a_clock_that_does_not_exist_is_none() {
        assert_eq!(clock_gettime_by_call(9999), None);
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let (clock, ticks) = (cpu_clock().unwrap(), times().unwrap());
        while cpu_clock().unwrap() < clock + 50_000_000 {}
        assert!(times().unwrap() > ticks);
    }
}
