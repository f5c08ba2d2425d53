//! The guests' memory on this machine: which of it could have huge pages, given and taken back.
//!
//! Huge pages are given with `MADV_COLLAPSE` (madvise(2), Linux 6.1) through a descriptor of the
//! process, and taken back through `split_huge_pages` of debugfs (kernel:
//! admin-guide/mm/transhuge.rst). Neither pauses a guest as a whole, and neither changes a byte.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use vtax_sys::calls::descriptors::pidfd_open;
use vtax_sys::calls::memory::collapse;
use vtax_sys::tree::{Tree, field};

use super::{Given, GuestMemory, TakenBack};

/// Bytes of a huge page of x86-64, and of arm64 with pages of 4 KiB.
const HUGE: u64 = PAGES as u64 * PAGE;
const PAGE: u64 = 4096;
const PAGES: usize = 512;
/// A mapping of fewer bytes is not a guest's memory: QEMU's own are smaller.
const LEAST: u64 = 32 << 20;
/// A huge page is made where at least half of its pages are there: the others cost memory.
const PRESENT_PAGES: usize = PAGES / 2;
/// The part of the host's memory that stays available.
const RESERVE: f64 = 0.1;
const SPLIT: &str = "/sys/kernel/debug/split_huge_pages";
/// The kernel passes over a page that is locked or in use at that moment: it is asked again after
/// `PAUSE` as long as one stays huge, for this time in all.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);
/// The bits of a word of `pagemap` that are the page's number (kernel: admin-guide/mm/pagemap.rst).
const FRAME: u64 = (1 << 55) - 1;
/// `KPF_THP` of `/proc/kpageflags`: the page is a part of a huge one (ibid.).
const IS_HUGE: u64 = 1 << 22;

/// A mapping of a guest's memory (proc(5), `smaps`).
#[derive(Debug, Clone, PartialEq)]
struct Mapping {
    addresses: Range<u64>,
    /// Can a huge page of its file be mapped at one of its addresses?
    aligned: bool,
    resident: u64,
    huge: u64,
}

/// A process with guests, as it was when it was looked at.
#[derive(Debug)]
struct Process {
    pid: i32,
    descriptor: OwnedFd,
    pages: File,
    start_ticks: Option<u64>,
}

/// The guests' memory on this machine.
#[derive(Debug)]
pub struct Machine {
    tree: Tree,
    processes: Vec<Process>,
    /// What may still become huge pages: the index of the process, and addresses from the beginning
    /// of a huge page on.
    waiting: VecDeque<(usize, Range<u64>)>,
    given: Vec<Part>,
}

/// What was given: the process, its start in clock ticks, and addresses.
type Part = (i32, Option<u64>, Range<u64>);

impl Machine {
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            processes: Vec::new(),
            waiting: VecDeque::new(),
            given: Vec::new(),
        }
    }

    fn add(&mut self, pid: i32, said: &mut Vec<String>) -> Result<(), String> {
        let smaps = self.tree.text(&format!("/proc/{pid}/smaps"));
        let mappings = mappings(&smaps.ok_or("its mappings cannot be read")?);
        let small = |one: &&Mapping| one.huge < one.resident;
        let mut mappings: Vec<&Mapping> = mappings.iter().filter(small).collect();
        if mappings.iter().any(|one| !one.aligned) {
            said.push(format!(
                "guest {pid}: its memory is not aligned to huge pages; start it with align=2M in \
                 its -object memory-backend-file"
            ));
        }
        mappings.retain(|one| one.aligned);
        if mappings.is_empty() {
            return Ok(());
        }
        let pages = File::open(self.tree.path(&format!("/proc/{pid}/pagemap")));
        self.processes.push(Process {
            pid,
            descriptor: pidfd_open(pid).map_err(|errno| errno.to_string())?,
            pages: pages.map_err(|error| error.to_string())?,
            start_ticks: self.tree.start_ticks(pid),
        });
        let index = self.processes.len() - 1;
        for mapping in mappings {
            let Range { start, end } = mapping.addresses;
            self.waiting.push_back((
                index,
                start.checked_next_multiple_of(HUGE).unwrap_or(end)..end,
            ));
        }
        Ok(())
    }

    /// The next whole huge page that waits.
    fn next(&mut self) -> Option<(usize, u64)> {
        loop {
            let (index, range) = self.waiting.front_mut()?;
            let (index, start) = (*index, range.start);
            if range.end.saturating_sub(start) < HUGE {
                self.waiting.pop_front();
                continue;
            }
            range.start += HUGE;
            let process = &self.processes[index];
            if !is_given(&self.given, process.pid, process.start_ticks, start) {
                return Some((index, start));
            }
        }
    }

    /// Ask the kernel to make small what was given.
    fn split(&self) -> Result<(), String> {
        for (pid, _, range) in &self.given {
            let line = format!("{pid},{:#x},{:#x}", range.start, range.end);
            fs::write(self.tree.path(SPLIT), &line)
                .map_err(|error| format!("{SPLIT}: {error}; is debugfs mounted?"))?;
        }
        Ok(())
    }

    /// What was given and is huge now.
    fn still_huge(&self) -> Result<Vec<Part>, String> {
        const FLAGS: &str = "/proc/kpageflags";
        let flags =
            File::open(self.tree.path(FLAGS)).map_err(|error| format!("{FLAGS}: {error}"))?;
        let mut left = Vec::new();
        for (pid, ticks, range) in &self.given {
            // A process that has just ended has no huge page any more.
            let Ok(pages) = File::open(self.tree.path(&format!("/proc/{pid}/pagemap"))) else {
                continue;
            };
            let starts = (range.start / HUGE..range.end / HUGE).map(|number| number * HUGE);
            for start in starts.filter(|start| is_huge(&pages, &flags, *start)) {
                note(&mut left, *pid, *ticks, start);
            }
        }
        Ok(left)
    }
}

/// Add a huge page of a process to `parts`.
fn note(parts: &mut Vec<Part>, pid: i32, ticks: Option<u64>, start: u64) {
    if let Some((last, begun, range)) = parts.last_mut()
        && (*last, *begun, range.end) == (pid, ticks, start)
    {
        range.end += HUGE;
    } else {
        parts.push((pid, ticks, start..start + HUGE));
    }
}

fn bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.2.end - part.2.start).sum()
}

/// Is the page at `start` a part of a huge one?
fn is_huge(pages: &File, flags: &File, start: u64) -> bool {
    let word = |file: &File, index: u64| {
        let mut bytes = [0; 8];
        let read = file.read_exact_at(&mut bytes, index * 8);
        read.is_ok().then(|| u64::from_le_bytes(bytes))
    };
    word(pages, start / PAGE)
        .filter(|word| word >> 63 == 1)
        .and_then(|page| word(flags, page & FRAME))
        .is_some_and(|flags| flags & IS_HUGE != 0)
}

impl GuestMemory for Machine {
    fn look(&mut self) -> Vec<String> {
        self.processes.clear();
        self.waiting.clear();
        let mut said = Vec::new();
        for pid in self.tree.processes() {
            if self.tree.kvm_descriptors(pid).is_some()
                && let Err(reason) = self.add(pid, &mut said)
            {
                said.push(format!("guest {pid}: {reason}"));
            }
        }
        said
    }

    fn waiting(&self) -> u64 {
        let sizes = self
            .waiting
            .iter()
            .map(|(_, range)| range.end.saturating_sub(range.start));
        sizes.map(|bytes| bytes / HUGE * HUGE).sum()
    }

    fn is_short(&self) -> bool {
        let text = self.tree.text("/proc/meminfo").unwrap_or_default();
        let number = |name| {
            let words = field(&text, name)?;
            words.split_ascii_whitespace().next()?.parse::<f64>().ok()
        };
        match (number("MemAvailable"), number("MemTotal")) {
            (Some(available), Some(total)) => available < RESERVE * total,
            _ => true,
        }
    }

    fn give(&mut self, time: Duration) -> Given {
        let end = Instant::now() + time;
        let mut given = Given::default();
        while !self.is_short()
            && let Some((index, start)) = self.next()
        {
            let process = &self.processes[index];
            if present(&process.pages, start).is_some_and(|pages| pages >= PRESENT_PAGES) {
                match collapse(process.descriptor.as_fd(), start, HUGE) {
                    Ok(()) => {
                        given.bytes += HUGE;
                        let (pid, ticks) = (process.pid, process.start_ticks);
                        note(&mut self.given, pid, ticks, start);
                    }
                    // A guest that has ended takes its memory along.
                    Err(Errno::ESRCH) => {}
                    Err(Errno::EINVAL | Errno::ENOSYS) => {
                        given.refused = Some("that needs Linux 6.1");
                    }
                    Err(errno) => given.refused = Some(errno.desc()),
                }
            }
            if Instant::now() >= end {
                break;
            }
        }
        given
    }

    fn take_back(&mut self) -> Result<TakenBack, String> {
        let end = Instant::now() + PATIENCE;
        let before = bytes(&self.given);
        // What has ended took its memory along.
        let tree = &self.tree;
        self.given
            .retain(|(pid, start_ticks, _)| tree.start_ticks(*pid) == *start_ticks);
        loop {
            self.split()?;
            self.given = self.still_huge()?;
            if self.given.is_empty() || Instant::now() >= end {
                let left = bytes(&self.given);
                return Ok(TakenBack {
                    bytes: before - left,
                    left,
                });
            }
            thread::sleep(PAUSE);
        }
    }

    fn release(&mut self) {
        self.given.clear();
    }
}

/// Was the page at `start` given to this process before? The kernel would take it again and say that
/// it is huge.
fn is_given(given: &[Part], pid: i32, start_ticks: Option<u64>, start: u64) -> bool {
    let same = |part: &&Part| (part.0, part.1) == (pid, start_ticks);
    given
        .iter()
        .filter(same)
        .any(|part| part.2.contains(&start))
}

/// The number of pages that are there, of the huge page at `start`; `None` where nobody says.
fn present(pages: &File, start: u64) -> Option<usize> {
    let mut entries = [0; 8 * PAGES];
    // One word for each page (kernel: admin-guide/mm/pagemap.rst).
    pages.read_exact_at(&mut entries, start / PAGE * 8).ok()?;
    let words = entries.as_chunks::<8>().0;
    let is_present = |word: &&[u8; 8]| u64::from_le_bytes(**word) >> 63 == 1;
    Some(words.iter().filter(is_present).count())
}

/// The writable mappings of a guest's size with pages of 4 KiB, from the text of `/proc/PID/smaps`.
fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut current: Option<Mapping> = None;
    for line in smaps.lines() {
        if let Some(head) = head(line) {
            found.extend(current.replace(head));
        } else if let Some(mapping) = &mut current {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(Ok(kib))) = (words.next(), words.next().map(str::parse::<u64>))
            else {
                continue;
            };
            let bytes = kib.saturating_mul(1024);
            match name {
                // Pages of hugetlbfs are huge already.
                "KernelPageSize:" if bytes != PAGE => current = None,
                "Rss:" => mapping.resident = bytes,
                "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => {
                    mapping.huge = mapping.huge.saturating_add(bytes);
                }
                _ => {}
            }
        }
    }
    found.extend(current);
    found.retain(|one| one.addresses.end - one.addresses.start >= LEAST);
    found
}

/// The head of a writable mapping: addresses, rights, offset, device, inode, path. The head of
/// another mapping is an empty one.
fn head(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let writable = words.next()?.starts_with("rw");
    let offset = number(words.next()?)?;
    let is_file = words.nth(1)? != "0";
    let end = if writable { end.max(start) } else { start };
    Some(Mapping {
        addresses: start..end,
        aligned: !is_file || start.wrapping_sub(offset) % HUGE == 0,
        resident: 0,
        huge: 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMAPS: &str = "\
55d0c0000000-55d0c0400000 rw-p 00000000 00:00 0                          [heap]
KernelPageSize:        4 kB
Rss:                4096 kB
7fadcfe00000-7faddfe00000 rw-s 00000000 00:17 2                          /dev/shm/guest 0
Size:             262144 kB
KernelPageSize:        4 kB
Rss:              151192 kB
ShmemPmdMapped:     2048 kB
VmFlags: rd wr sh
7fb000001000-7fb010001000 rw-s 00000000 00:17 3                          /dev/shm/guest-1
KernelPageSize:        4 kB
Rss:                 100 kB
7fb020001000-7fb030001000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
AnonHugePages:     65536 kB
7fb040000000-7fb050000000 rw-s 00000000 00:18 4                          /dev/hugepages/guest
KernelPageSize:     2048 kB
7fb060000000-7fb070000000 r--p 00000000 08:01 5                          /usr/lib/large
KernelPageSize:        4 kB";

    #[test]
    fn guests_memory_is_found_among_mappings() {
        let mapping = |start: u64, aligned, resident, huge| Mapping {
            addresses: start..start + (256 << 20),
            aligned,
            resident,
            huge,
        };
        let expected = [
            mapping(0x7fad_cfe0_0000, true, 151_192 << 10, 2 << 20),
            mapping(0x7fb0_0000_1000, false, 100 << 10, 0),
            mapping(0x7fb0_2000_1000, true, 0, 64 << 20),
        ];
        assert_eq!(mappings(SMAPS), expected);
    }

    #[test]
    fn what_was_given_is_not_given_again() {
        let given = [(7, Some(1), HUGE..3 * HUGE)];
        assert!(is_given(&given, 7, Some(1), 2 * HUGE));
        assert!(!is_given(&given, 7, Some(1), 3 * HUGE));
        // Another process has the number now.
        assert!(!is_given(&given, 7, Some(2), 2 * HUGE));
    }

    proptest! {
        #[test]
        fn no_text_ends_the_controller(text in "[0-9a-f rw:p\\-kBRsKernlPageSiz\n]*") {
            for mapping in mappings(&text) {
                prop_assert!(mapping.addresses.end >= mapping.addresses.start);
            }
        }
    }
}
