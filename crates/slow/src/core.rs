//! An emulated CPU that is slowed. Its own thread calls it.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vtax_sys::clock::{monotonic_ns, thread_time_ns, time_stamp_counter};

use crate::pace::{FULL, Pace, float, whole};
use crate::speed::SpeedFile;

/// Blocks between two looks at the time stamp counter, at every speed: looks take time, too.
const BLOCKS: u32 = 8;
/// How often the file is read.
const READ_EVERY_NS: f64 = 1e6;

#[derive(Debug)]
#[repr(align(128))] // Other CPUs' threads write beside it.
pub struct Core {
    /// Blocks until the next look.
    left: AtomicU32,
    /// When there is something to do, in ticks.
    due: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    file: SpeedFile,
    percent: f64,
    pace: Pace,
    /// When the file is read next, in ticks.
    read: u64,
    /// A moment in ticks and in nanoseconds.
    start: (u64, u64),
}

impl Core {
    /// Number `cpu`, at full speed, with its file in the folder.
    pub fn new(folder: &Path, cpu: usize) -> io::Result<Self> {
        let held = Held {
            file: SpeedFile::create(folder, cpu)?,
            percent: FULL,
            pace: Pace::default(),
            read: 0,
            start: (time_stamp_counter(), monotonic_ns()),
        };
        Ok(Self {
            left: AtomicU32::new(0),
            due: AtomicU64::new(0),
            held: Mutex::new(held),
        })
    }

    /// The CPU is about to execute a block.
    #[inline]
    pub fn block(&self) {
        if let Some(left) = self.left.load(Ordering::Relaxed).checked_sub(1) {
            self.left.store(left, Ordering::Relaxed);
            return;
        }
        self.left.store(BLOCKS - 1, Ordering::Relaxed);
        let now = time_stamp_counter();
        if now >= self.due.load(Ordering::Relaxed) {
            self.act(now);
        }
    }

    #[inline(never)]
    fn act(&self, now: u64) {
        if let Ok(mut held) = self.held.lock() {
            self.due.store(held.act(now), Ordering::Relaxed);
        }
    }
}

impl Held {
    /// Wait for as long as the CPU has to. Returns when there is something to do again.
    fn act(&mut self, mut now: u64) -> u64 {
        if now >= self.read {
            self.read(now);
        }
        if self.percent >= FULL {
            return self.read;
        }
        self.pace.wait(now, self.percent, thread_time_ns);
        while self.pace.waits(now) {
            now = time_stamp_counter();
        }
        now + self.pace.work(self.percent)
    }

    /// Look whether the file has another speed.
    #[cold]
    fn read(&mut self, now: u64) {
        let (ticks, ns) = self.start;
        let ticks_per_ns = float(now - ticks) / float(monotonic_ns() - ns).max(1.0);
        self.read = now + whole(READ_EVERY_NS * ticks_per_ns);
        let percent = self.file.read().unwrap_or(self.percent);
        if self.percent >= FULL && percent < FULL {
            self.pace = Pace::begin(ticks_per_ns, now, thread_time_ns());
        }
        self.percent = percent;
    }
}
