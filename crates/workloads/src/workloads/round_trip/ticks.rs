//! A periodic timer whose expirations are compared with the time that has passed.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::read;

use vtax_sys::terminal::Error;

const PERIOD: Duration = Duration::from_millis(10);

/// A timer of `CLOCK_MONOTONIC`, and two moments between which it was started.
#[derive(Debug)]
pub struct Ticks {
    timer: TimerFd,
    before_start: Instant,
    after_start: Instant,
    /// Expirations so far.
    pub total: u64,
    /// Readings at which the total did not fit the elapsed time.
    pub errors: u64,
}

impl Ticks {
    /// Start the timer.
    ///
    /// Fails when the kernel refuses the timer.
    pub fn start() -> Result<Self, Error> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(refused)?;
        let before_start = Instant::now();
        timer
            .set(
                Expiration::Interval(TimeSpec::from_duration(PERIOD)),
                TimerSetTimeFlags::empty(),
            )
            .map_err(refused)?;
        Ok(Self {
            timer,
            before_start,
            after_start: Instant::now(),
            total: 0,
            errors: 0,
        })
    }

    /// Read the expirations since the last reading.
    ///
    /// The kernel computes their number from the time of the read (`timerfd_read`), so it is exact
    /// however late the timer's interrupt was. Before that interrupt there is nothing to read,
    /// which is not an error.
    ///
    /// Fails when the timer cannot be read.
    pub fn look(&mut self) -> Result<(), Error> {
        let before = Instant::now();
        let mut bytes = [0; 8];
        match read(&self.timer, &mut bytes) {
            Ok(_) => self.take(u64::from_ne_bytes(bytes), before, Instant::now()),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(refused(errno)),
        }
        Ok(())
    }

    fn take(&mut self, expirations: u64, before: Instant, after: Instant) {
        self.total += expirations;
        let least = periods(before.saturating_duration_since(self.after_start));
        let most = periods(after.saturating_duration_since(self.before_start));
        // The timer and this program use the same clock, but round differently: allow one more.
        let fits = (least.saturating_sub(1)..=most + 1).contains(&self.total);
        self.errors += u64::from(!fits);
    }
}

fn periods(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / PERIOD.as_nanos()).unwrap_or(u64::MAX - 1)
}

fn refused(errno: Errno) -> Error {
    Error::system("timerfd", errno, "use a kernel with timerfd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expirations_fit_the_time_however_seldom_one_looks() {
        let mut ticks = Ticks::start().unwrap();
        for pause in [1, 9, 15, 100, 3] {
            std::thread::sleep(Duration::from_millis(pause));
            ticks.look().unwrap();
        }
        assert!(ticks.total >= 11, "{ticks:?}");
        assert_eq!(ticks.errors, 0, "{ticks:?}");
    }

    #[test]
    fn ticks_too_few_and_too_many_are_errors() {
        let mut ticks = Ticks::start().unwrap();
        let later = ticks.after_start + Duration::from_millis(105);
        for (total, errors) in [(10, 0), (9, 0), (8, 1), (11, 0), (13, 1)] {
            (ticks.total, ticks.errors) = (0, 0);
            ticks.take(total, later, later);
            assert_eq!(ticks.errors, errors, "{total}");
        }
    }
}
