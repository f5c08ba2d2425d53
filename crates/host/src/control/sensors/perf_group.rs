//! Events of one thread that count together, by `perf_event_open`.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;
use perf_event_open_sys::bindings as perf;

use vtax_sys::calls::perf::{perf_event_enable, perf_event_of_thread};

/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `_RUNNING` and `_GROUP`.
const FORMAT: u64 = 1 | 2 | 8;
/// The most events of a group.
pub const MOST: usize = 8;

/// An event, and where it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    pub level: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// In the guest only.
    Guest,
    /// In this host's kernel only: for a virtual CPU, in KVM and what it calls.
    Kernel,
    /// Everywhere; for tests on machines that cannot count guests.
    All,
}

/// The open events of a thread.
#[derive(Debug)]
pub struct Group {
    /// The leader first; the others are read through it.
    events: Vec<OwnedFd>,
    leader: File,
}

impl Group {
    /// Open and enable the events.
    ///
    /// Fails with the errno of the system call; EINVAL or ENOSPC where the processor cannot count
    /// them at the same time.
    pub fn open(thread: i32, events: &[Event]) -> Result<Self, Errno> {
        let mut opened: Vec<OwnedFd> = Vec::with_capacity(events.len());
        for event in events.iter().take(MOST) {
            let leader = opened.first().map(AsFd::as_fd);
            let mut attributes = event.attributes(leader.is_none());
            let fd = perf_event_of_thread(&mut attributes, Pid::from_raw(thread), leader)?;
            opened.push(fd);
        }
        let leader = opened.first().ok_or(Errno::EINVAL)?;
        perf_event_enable(leader.as_fd(), true)?;
        let leader = leader.try_clone().map_err(|_| Errno::EMFILE)?;
        Ok(Self {
            events: opened,
            leader: leader.into(),
        })
    }

    /// The counts, in the order of the events.
    ///
    /// Fails with the reason when they were not counted the whole time: a scaled count would be an
    /// estimate.
    pub fn read(&mut self) -> Result<Vec<u64>, String> {
        let mut bytes = [0_u8; (3 + MOST) * 8];
        let length = self
            .leader
            .read(&mut bytes)
            .map_err(|error| vtax_sys::reason(&error))?;
        // A pinned group that lost its counters ends at this point.
        if length < (3 + self.events.len()) * 8 {
            return Err("somebody else holds the counters".into());
        }
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let (_, enabled, running) = (words.next(), words.next(), words.next());
        if enabled != running {
            return Err("the counters are shared with somebody else".into());
        }
        Ok(words.take(self.events.len()).collect())
    }
}

impl Event {
    fn attributes(self, leads: bool) -> perf::perf_event_attr {
        let mut attributes = perf::perf_event_attr::default();
        attributes.type_ = self.kind;
        // Fields beyond those of this version are not used, so older kernels accept the structure
        // too.
        attributes.size = perf::PERF_ATTR_SIZE_VER5;
        attributes.config = self.config;
        attributes.read_format = FORMAT;
        attributes.set_disabled(u64::from(leads));
        attributes.set_pinned(u64::from(leads));
        attributes.set_exclude_host(u64::from(self.level == Level::Guest));
        attributes.set_exclude_guest(u64::from(self.level == Level::Kernel));
        attributes.set_exclude_user(u64::from(self.level == Level::Kernel));
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_a_thread_is_read_at_once() {
        // Software events exist without a hardware counter, and grow with the thread's own work.
        let event = |config: u32| Event {
            kind: perf::PERF_TYPE_SOFTWARE,
            config: config.into(),
            level: Level::All,
        };
        let events = [
            event(perf::PERF_COUNT_SW_TASK_CLOCK),
            event(perf::PERF_COUNT_SW_PAGE_FAULTS),
        ];
        let mut group = match Group::open(0, &events) {
            Err(Errno::EACCES | Errno::EPERM) => {
                eprintln!("skipped: kernel.perf_event_paranoid forbids perf events");
                return;
            }
            group => group.unwrap(),
        };
        let before = group.read().unwrap();
        std::hint::black_box(vec![1_u8; 16 << 20]);
        let after = group.read().unwrap();
        assert_eq!((before.len(), after.len()), (2, 2));
        assert!(after[0] > before[0] && after[1] > before[1], "{after:?}");
    }

    #[test]
    fn no_event_is_no_group() {
        assert_eq!(Group::open(0, &[]).unwrap_err(), Errno::EINVAL);
    }
}
