//! The clocks that a program can read.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_getres};
use vtax_sys::calls::clocks::{
    clock_gettime_by_call, cpu_clock, gettimeofday, gettimeofday_by_call, times,
};
use vtax_sys::calls::processor::{COUNTER, COUNTER_IN_ORDER, time_stamp_counter_in_order};
use vtax_sys::clock::{now_ns, tick_ns, time_stamp_counter};

/// One clock, under the name that programs use.
#[derive(Debug, Clone, Copy)]
pub struct ClockReader {
    /// Such as `CLOCK_REALTIME` or `gettimeofday`.
    pub name: &'static str,
    reader: Reader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Clock(ClockId),
    TimeOfDay,
    CpuClock,
    Usage,
    Times { tick_ns: u64 },
    Counter,
    CounterInOrder,
}

/// `CLOCK_REALTIME`, which may be set.
pub const REALTIME: ClockReader = ClockReader::clock("CLOCK_REALTIME", ClockId::CLOCK_REALTIME);

/// `CLOCK_MONOTONIC`, which times the other clocks here.
pub const TIMER: ClockReader = ClockReader::clock("CLOCK_MONOTONIC", ClockId::CLOCK_MONOTONIC);

/// `CLOCK_MONOTONIC_RAW`, which NTP does not adjust.
pub const RAW: ClockReader =
    ClockReader::clock("CLOCK_MONOTONIC_RAW", ClockId::CLOCK_MONOTONIC_RAW);

impl ClockReader {
    const fn clock(name: &'static str, clock: ClockId) -> Self {
        Self {
            name,
            reader: Reader::Clock(clock),
        }
    }

    pub fn all() -> Vec<Self> {
        let mut sources = vec![
            REALTIME,
            TIMER,
            RAW,
            Self::clock("CLOCK_BOOTTIME", ClockId::CLOCK_BOOTTIME),
            Self::clock("CLOCK_TAI", ClockId::CLOCK_TAI),
            Self::clock("CLOCK_REALTIME_COARSE", ClockId::CLOCK_REALTIME_COARSE),
            Self::clock("CLOCK_MONOTONIC_COARSE", ClockId::CLOCK_MONOTONIC_COARSE),
            Self::clock(
                "CLOCK_PROCESS_CPUTIME_ID",
                ClockId::CLOCK_PROCESS_CPUTIME_ID,
            ),
            Self::clock("CLOCK_THREAD_CPUTIME_ID", ClockId::CLOCK_THREAD_CPUTIME_ID),
        ];
        let tick_ns = tick_ns();
        let others = [
            ("gettimeofday", Reader::TimeOfDay),
            ("clock", Reader::CpuClock),
            ("getrusage", Reader::Usage),
            ("times", Reader::Times { tick_ns }),
            (COUNTER, Reader::Counter),
        ];
        let in_order = COUNTER_IN_ORDER.map(|name| (name, Reader::CounterInOrder));
        let others = others.into_iter().chain(in_order);
        sources.extend(others.map(|(name, reader)| Self { name, reader }));
        sources
    }

    /// The time in the source's unit; `None` when it cannot be read.
    #[inline]
    pub fn read(self) -> Option<u64> {
        match self.reader {
            Reader::Clock(clock) => now_ns(clock),
            Reader::TimeOfDay => gettimeofday(),
            Reader::CpuClock => cpu_clock(),
            Reader::Usage => {
                let used = getrusage(UsageWho::RUSAGE_SELF).ok()?;
                u64::try_from((used.user_time() + used.system_time()).num_nanoseconds()).ok()
            }
            Reader::Times { tick_ns } => times().map(|ticks| ticks * tick_ns),
            Reader::Counter => Some(time_stamp_counter()),
            Reader::CounterInOrder => time_stamp_counter_in_order(),
        }
    }

    /// Read the same clock by a system call, where the source has a way around it.
    pub fn read_by_call(self) -> Option<u64> {
        match self.reader {
            Reader::Clock(clock) => clock_gettime_by_call(clock.as_raw()),
            Reader::TimeOfDay => gettimeofday_by_call(),
            _ => None,
        }
    }

    /// Can [`ClockReader::read_by_call`] take another path than [`ClockReader::read`]?
    pub fn has_call(self) -> bool {
        matches!(self.reader, Reader::Clock(_) | Reader::TimeOfDay)
    }

    /// Is it an instruction rather than a function?
    pub fn is_instruction(self) -> bool {
        matches!(self.reader, Reader::Counter | Reader::CounterInOrder)
    }

    /// The unit of readings and their differences.
    pub fn unit(self) -> &'static str {
        if self.is_instruction() { "ticks" } else { "ns" }
    }

    /// Does each thread have its own clock?
    pub fn is_of_one_thread(self) -> bool {
        self.reader == Reader::Clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }

    /// The resolution that the kernel claims. Fails, with the reason in words, where it claims
    /// none.
    pub fn resolution_ns(self) -> Result<u64, String> {
        let values = match self.reader {
            Reader::Clock(clock) => return resolution_ns(clock),
            Reader::TimeOfDay | Reader::CpuClock | Reader::Usage => "count microseconds",
            Reader::Times { .. } => "count clock ticks",
            Reader::Counter | Reader::CounterInOrder => "count ticks of the processor's counter",
        };
        Err(format!(
            "clock_getres has no such clock; its values {values}"
        ))
    }
}

fn resolution_ns(clock: ClockId) -> Result<u64, String> {
    let time = clock_getres(clock).map_err(|errno| format!("clock_getres: {}", errno.desc()))?;
    u64::try_from(time.num_nanoseconds()).map_err(|_| "clock_getres: a negative time".into())
}
