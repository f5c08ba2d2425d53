//! How long a CPU has to wait to be as slow as it should be.

/// Full speed, in percent.
pub const FULL: f64 = 100.0;
/// Work and waiting together, in nanoseconds. At half the speed an emulated interrupt waits half of
/// it at most.
const PERIOD_NS: f64 = 25_000.0;
/// A longer time between two readings of the counter, in nanoseconds, means that the thread did not
/// run.
const GAP_NS: f64 = 5_000.0;

/// A thread that works and waits in turn. Times are ticks of the time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    ticks_per_ns: f64,
    /// When it began to work; while it waits, when it last looked.
    begin: u64,
    /// When it has waited long enough.
    until: u64,
    /// For how long it waited beyond that.
    credit: u64,
    /// When its CPU time was last read, and that time in nanoseconds.
    read: (u64, u64),
    /// For how long it did not run since then, as far as is known.
    stood: u64,
}

impl Pace {
    /// It begins to work at `now`, with a CPU time of `cpu_ns`.
    pub fn begin(ticks_per_ns: f64, now: u64, cpu_ns: u64) -> Self {
        Self {
            ticks_per_ns,
            begin: now,
            read: (now, cpu_ns),
            ..Self::default()
        }
    }

    /// How long it works at this speed before it waits.
    pub fn work(&self, percent: f64) -> u64 {
        self.ticks(PERIOD_NS * percent / FULL)
    }

    /// It has worked up to `now`, at a speed of `percent`, and begins to wait: w ticks of work are
    /// to take w * 100 / percent. `cpu_ns` reads its CPU time, which itself takes long.
    pub fn wait(&mut self, now: u64, percent: f64, cpu_ns: impl FnOnce() -> u64) {
        let mut work = now.saturating_sub(self.begin);
        if work > 2 * self.work(percent) + self.ticks(GAP_NS) {
            work = work.saturating_sub(self.stood(now, cpu_ns()));
        }
        let wait = whole(float(work) * (FULL / percent - 1.0));
        self.until = now + wait.saturating_sub(self.credit);
        self.credit = self.credit.saturating_sub(wait);
        self.begin = now;
    }

    /// Is it still waiting at `now`? If not, it works again.
    pub fn waits(&mut self, now: u64) -> bool {
        let passed = now.saturating_sub(self.begin);
        if passed > self.ticks(GAP_NS) {
            self.until += passed;
            self.stood += passed;
        }
        self.begin = now;
        self.credit += now.saturating_sub(self.until);
        now < self.until
    }

    /// For how long it did not run and this was not known, up to `now`.
    fn stood(&mut self, now: u64, cpu_ns: u64) -> u64 {
        let (at, before) = self.read;
        let ran = self.ticks(float(cpu_ns.saturating_sub(before)));
        let unknown = now.saturating_sub(at).saturating_sub(ran + self.stood);
        (self.read, self.stood) = ((now, cpu_ns), 0);
        unknown
    }

    fn ticks(&self, ns: f64) -> u64 {
        whole(ns * self.ticks_per_ns)
    }
}

/// Times are not negative, and the cast saturates.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn whole(time: f64) -> u64 {
    time as u64
}

/// Differences of times are far below 2^53.
#[expect(clippy::cast_precision_loss)]
pub fn float(time: u64) -> f64 {
    time as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICKS_PER_NS: f64 = 2.5;
    const READING: u64 = 100;

    /// A thread with its clocks: `now` in ticks, `cpu` in ticks in which it ran.
    #[derive(Default)]
    struct Thread {
        now: u64,
        cpu: u64,
        worked: u64,
    }

    impl Thread {
        fn run(&mut self, ticks: u64) {
            self.now += ticks;
            self.cpu += ticks;
        }

        /// It works for `ticks`, stands for `stands` ticks, and waits, where it stands `again`.
        fn turn(&mut self, pace: &mut Pace, percent: f64, ticks: u64, stands: u64, again: u64) {
            self.run(ticks);
            self.worked += ticks;
            self.now += stands;
            pace.wait(self.now, percent, || whole(float(self.cpu) / TICKS_PER_NS));
            let mut again = Some(again);
            while pace.waits(self.now) {
                match again.take() {
                    Some(stands) if stands > 0 => self.now += stands,
                    _ => self.run(READING),
                }
            }
        }
    }

    fn thread() -> (Thread, Pace) {
        let now = 1 << 40;
        let thread = Thread {
            now,
            ..Thread::default()
        };
        (thread, Pace::begin(TICKS_PER_NS, now, 0))
    }

    proptest! {
        #[test]
        fn work_takes_as_long_as_it_should(
            percent in 5.0..100.0,
            pieces in proptest::collection::vec(
                (1_u64..20_000, prop_oneof![Just(0), 300_000_u64..9_000_000], prop_oneof![Just(0), 20_000_u64..9_000_000]),
                50..200,
            ),
        ) {
            let (mut thread, mut pace) = thread();
            for (work, stands, again) in pieces {
                thread.turn(&mut pace, percent, work, stands, again);
            }
            let asked = float(thread.worked) * FULL / percent;
            let taken = float(thread.cpu);
            // One reading of the counter beyond the end of the last turn, and rounding.
            prop_assert!((taken - asked).abs() < 1_000.0 + 0.001 * asked, "{taken} {asked}");
        }
    }

    #[test]
    fn pieces_are_short_at_every_speed() {
        let (_, pace) = thread();
        for percent in [1.0, 25.0, 50.0, 99.0] {
            let work = float(pace.work(percent)) / TICKS_PER_NS;
            let wait = work * (FULL / percent - 1.0);
            assert!((work + wait - PERIOD_NS).abs() < 1.0 * FULL / percent);
        }
    }
}
