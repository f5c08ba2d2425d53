//! A real-time thread that takes a share of the time of one CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use vtax_sys::calls::scheduling::{Policy, set_affinity, set_policy};

/// Short, so that no thread stands still for long; shorter periods cost too much time themselves.
const PERIOD: Duration = Duration::from_millis(2);
/// Above everything that is not real-time, below most that is.
const PRIORITY: u8 = 1;

/// The hog's thread, which runs until this is dropped.
#[derive(Debug)]
pub struct Hog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The time that it takes of every period; 0: none.
    busy_ns: AtomicU64,
    ended: AtomicBool,
}

impl Hog {
    /// Start the thread on a CPU; it takes no time yet.
    ///
    /// Fails with the errno of the kernel, which may forbid real-time threads.
    pub fn start(cpu: usize) -> Result<Self, Errno> {
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = channel();
        let own = shared.clone();
        let thread = spawn(move || {
            let ready =
                set_affinity(0, &[cpu]).and_then(|()| set_policy(0, Policy::Fifo(PRIORITY)));
            let refused = ready.is_err();
            if sender.send(ready).is_err() || refused {
                return;
            }
            own.run();
        });
        let hog = Self {
            shared,
            thread: Some(thread),
        };
        receiver.recv().unwrap_or(Err(Errno::EIO)).map(|()| hog)
    }

    /// Leave this share of the CPU to others.
    pub fn leave(&self, share: f64) {
        let busy = PERIOD.mul_f64((1.0 - share).clamp(0.0, 1.0));
        let busy_ns = u64::try_from(busy.as_nanos()).unwrap_or(0);
        self.shared.busy_ns.store(busy_ns, Ordering::Relaxed);
    }
}

impl Shared {
    fn run(&self) {
        let mut begin = Instant::now();
        while !self.ended.load(Ordering::Relaxed) {
            let busy = Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed));
            // Counted from the planned start, so that the cost of waking is not added.
            while !busy.is_zero() && begin.elapsed() < busy {}
            // Real-time throttling may have stopped the thread for whole periods: those are lost.
            begin = (begin + PERIOD).max(Instant::now());
            sleep(
                begin
                    .saturating_duration_since(Instant::now())
                    .max(Duration::from_micros(1)),
            );
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
