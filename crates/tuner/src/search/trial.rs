//! What the search needs from a candidate: one timing at a time.

use std::time::Duration;

/// One timing of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// 10^9 floating-point operations per second.
    pub gflops: f64,
    /// The same by CPU time where that is known; candidates are compared by this value.
    pub gflops_on_cpu: f64,
    /// The seconds that the timing took, including everything around it.
    pub seconds: f64,
}

#[cfg(test)]
impl Measured {
    /// A timing on a machine that does nothing else.
    pub fn undisturbed(gflops: f64, seconds: f64) -> Self {
        Self {
            gflops,
            gflops_on_cpu: gflops,
            seconds,
        }
    }
}

/// Why a candidate takes no part: it cannot be compiled, or computes a wrong result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected(pub String);

/// Something that times candidates. Tests use one with a known optimum.
pub trait Trial<P> {
    /// Time a candidate once; a new candidate is compiled and verified first.
    ///
    /// Fails with the reason when the candidate must not be used.
    fn gflops(&mut self, candidate: &P) -> Result<Measured, Rejected>;
}

/// The time that the search has.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    clock: &'a dyn Fn() -> Duration,
    end: Duration,
}

impl<'a> Budget<'a> {
    /// A budget that lasts until the clock shows `end`.
    pub fn until(clock: &'a dyn Fn() -> Duration, end: Duration) -> Self {
        Self { clock, end }
    }

    pub fn left(&self) -> Duration {
        self.end.saturating_sub((self.clock)())
    }

    /// Is there time for something that takes this many seconds?
    pub fn has(&self, seconds: f64) -> bool {
        let left = self.left();
        !left.is_zero() && left.as_secs_f64() >= seconds
    }
}
