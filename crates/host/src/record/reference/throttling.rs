//! When perf stopped a reference event because it overflowed too often.
//!
//! An event that has overflowed `kernel.perf_event_max_sample_rate` / HZ times since the last tick
//! stands still until the next tick, which can take long on an idle CPU. eBPF programs are not
//! told; the kernel writes a record into the event's buffer, which is mapped only for this.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};
use perf_event_open_sys::bindings::{PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE};
use vtax_sys::calls::memory::Mapping;
use vtax_sys::tree::Tree;

/// Words of `struct perf_event_mmap_page` (`linux/perf_event.h`).
const HEAD: usize = 1024 / 8;
const TAIL: usize = 1032 / 8;
/// Pages of records: with 4 KiB pages they hold 256 stops. There is at most one stop in a tick, and
/// the rings of the rows, which are emptied together with this buffer, fill up earlier.
const PAGES: usize = 4;
/// Where the kernel's limit is.
const LIMIT: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// The overflows per second that the kernel currently allows.
pub fn limit(tree: &Tree) -> Option<u64> {
    tree.number(LIMIT)
}

/// A time in which an event stood still, or still does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    from_ns: u64,
    to_ns: Option<u64>,
}

/// The stops of one CPU's event.
#[derive(Debug, Default)]
struct Cpu {
    buffer: Option<Buffer>,
    stops: VecDeque<Stop>,
}

/// Watches the reference events of all CPUs.
#[derive(Debug, Default)]
pub struct Throttling {
    cpus: BTreeMap<u32, Cpu>,
    times: u64,
    stopped_ns: u64,
}

impl Throttling {
    /// Watch the event of a CPU from here on.
    ///
    /// Fails with the errno of the system call.
    pub fn watch(&mut self, cpu: u32, event: impl AsFd) -> Result<(), Errno> {
        self.cpus.entry(cpu).or_default().buffer = Some(Buffer::map(event)?);
        Ok(())
    }

    /// Record that the event of a CPU ends.
    pub fn leave(&mut self, cpu: u32, now_ns: u64) {
        self.take();
        if let Some(cpu) = self.cpus.get_mut(&cpu) {
            cpu.buffer = None;
            self.stopped_ns += cpu.end(now_ns);
        }
    }

    /// Record that the recording ends.
    pub fn end(&mut self, now_ns: u64) {
        self.take();
        for cpu in self.cpus.values_mut() {
            self.stopped_ns += cpu.end(now_ns);
        }
    }

    /// Take the kernel's records. Rows must have been taken first: a stop is recorded before the
    /// row that follows it.
    pub fn take(&mut self) {
        for cpu in self.cpus.values_mut() {
            for (kind, time_ns) in cpu.buffer.iter_mut().flat_map(Buffer::take) {
                if kind == PERF_RECORD_THROTTLE {
                    self.times += 1;
                }
                self.stopped_ns += take(&mut cpu.stops, kind, time_ns);
            }
        }
    }

    /// How long the event of a CPU stood still between its previous row and this row.
    pub fn before(&mut self, cpu: u32, row_ns: u64) -> u64 {
        self.cpus
            .get_mut(&cpu)
            .map_or(0, |cpu| before(&mut cpu.stops, row_ns))
    }

    /// How often events stood still, and for how many nanoseconds in total.
    pub fn total(&self) -> (u64, u64) {
        (self.times, self.stopped_ns)
    }
}

impl Cpu {
    /// End the current stop at this moment; the stop is before no row. Returns its nanoseconds.
    fn end(&mut self, now_ns: u64) -> u64 {
        let open = self.stops.drain(..).filter(|stop| stop.to_ns.is_none());
        open.map(|stop| now_ns.saturating_sub(stop.from_ns)).sum()
    }
}

/// Take a record; returns the nanoseconds of a stop that it ends.
fn take(stops: &mut VecDeque<Stop>, kind: u32, time_ns: u64) -> u64 {
    let open = stops.back_mut().filter(|stop| stop.to_ns.is_none());
    match (kind, open) {
        (PERF_RECORD_THROTTLE, None) => {
            stops.push_back(Stop {
                from_ns: time_ns,
                to_ns: None,
            });
            0
        }
        (PERF_RECORD_UNTHROTTLE, Some(open)) => {
            open.to_ns = Some(time_ns);
            time_ns.saturating_sub(open.from_ns)
        }
        _ => 0,
    }
}

/// The overflow that is one too many still makes its row, a moment after the stop has begun. So a
/// stop counts for the first row after its end.
fn before(stops: &mut VecDeque<Stop>, row_ns: u64) -> u64 {
    let mut sum = 0;
    while let Some(Stop {
        from_ns,
        to_ns: Some(to_ns),
    }) = stops.front().copied()
        && to_ns <= row_ns
    {
        sum += to_ns.saturating_sub(from_ns);
        stops.pop_front();
    }
    sum
}

#[derive(Debug)]
struct Buffer {
    mapping: Mapping,
    page_words: usize,
}

impl Buffer {
    fn map(event: impl AsFd) -> Result<Self, Errno> {
        let bytes = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|bytes| usize::try_from(bytes).ok());
        let page_words = bytes.ok_or(Errno::EINVAL)? / 8;
        Ok(Self {
            mapping: Mapping::new(event, page_words * (1 + PAGES), true)?,
            page_words,
        })
    }

    /// Kind and time of the records since the last call; records of other kinds have an arbitrary
    /// time.
    fn take(&mut self) -> Vec<(u32, u64)> {
        // Acquire: the records were written before the head.
        let head = self.mapping.load(HEAD, Ordering::Acquire);
        let tail = self.mapping.load(TAIL, Ordering::Relaxed);
        let data = u64::try_from(self.page_words * PAGES).unwrap_or(1);
        let word = |at: u64| {
            let at = usize::try_from((at / 8) % data).unwrap_or(0);
            self.mapping.load(self.page_words + at, Ordering::Relaxed)
        };
        let records = records(tail, head, word);
        // Release: they have been read before the kernel may use their space again.
        self.mapping.store(TAIL, head, Ordering::Release);
        records
    }
}

/// Records consist of whole words: `struct perf_event_header`, followed for these kinds by the
/// time.
fn records(tail: u64, head: u64, word: impl Fn(u64) -> u64) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    let mut at = tail;
    while at < head {
        let header = word(at).to_ne_bytes();
        let [a, b, c, d, _, _, low, high] = header;
        found.push((u32::from_ne_bytes([a, b, c, d]), word(at + 8)));
        let size = u64::from(u16::from_ne_bytes([low, high]));
        if size < 8 {
            break;
        }
        at += size;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STOP: u32 = PERF_RECORD_THROTTLE;
    const GO: u32 = PERF_RECORD_UNTHROTTLE;

    fn taken(records: &[(u32, u64)]) -> VecDeque<Stop> {
        let mut stops = VecDeque::new();
        for (kind, time) in records {
            take(&mut stops, *kind, *time);
        }
        stops
    }

    #[test]
    fn a_stop_is_before_the_first_row_after_it() {
        let mut stops = taken(&[(STOP, 99), (GO, 400), (STOP, 500), (GO, 510), (STOP, 700)]);
        // The row of that overflow.
        assert_eq!(before(&mut stops, 100), 0);
        assert_eq!(before(&mut stops, 600), 301 + 10);
        assert_eq!(before(&mut stops, 701), 0);
        assert_eq!(take(&mut stops, GO, 900), 200);
        assert_eq!(before(&mut stops, 950), 200);
        assert_eq!(before(&mut stops, 990), 0);
    }

    #[test]
    fn a_stop_without_an_end_lasts_until_the_event_ends() {
        let stops = taken(&[(GO, 5), (STOP, 10), (STOP, 20), (2, 7)]);
        let mut cpu = Cpu {
            buffer: None,
            stops,
        };
        assert_eq!(cpu.end(110), 100);
        assert_eq!(cpu.end(210), 0);
    }

    proptest! {
        #[test]
        fn any_records_are_answered(
            words in proptest::collection::vec(any::<u64>(), 1..40),
            tail in 0_u64..1000,
            length in 0_u64..1000,
        ) {
            let word = |at: u64| words[usize::try_from(at / 8).unwrap() % words.len()];
            let mut stops = taken(&records(tail, tail + length, word));
            let _ = before(&mut stops, u64::MAX);
        }
    }
}
