//! How much memory a process uses within a second, by the accessed bits of its pages: the median of
//! the seconds.
//!
//! The kernel's `Documentation/filesystems/proc.rst`: `Referenced` of `smaps_rollup` counts the
//! memory accessed since 1 was written to `clear_refs`, without swapped-out pages.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use vtax_sys::tree::{Tree, field};

/// Pages that are used less often than this are not in the working set.
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct WorkingSet {
    process: Pid,
    window: Instant,
    /// Bytes accessed in the current window, as of the last look.
    current: Option<u64>,
    /// Bytes accessed in each finished window.
    windows: Vec<u64>,
}

impl WorkingSet {
    /// The working set of a process that begins at this moment.
    pub fn of(process: Pid) -> Self {
        Self {
            process,
            window: Instant::now(),
            current: None,
            windows: Vec::new(),
        }
    }

    /// Read what was accessed, and begin another window when this one is over.
    ///
    /// Beginning a window clears the accessed bits, so the kernel knows less about the use of pages
    /// when it reclaims them.
    pub fn look(&mut self, tree: &Tree) {
        self.current = self.referenced(tree);
        let Some(bytes) = self.current else { return };
        let clear = tree.path(&format!("/proc/{}/clear_refs", self.process));
        if self.window.elapsed() >= WINDOW && fs::write(clear, "1").is_ok() {
            self.windows.push(bytes);
            self.window = Instant::now();
        }
    }

    fn referenced(&self, tree: &Tree) -> Option<u64> {
        let rollup = tree.text(&format!("/proc/{}/smaps_rollup", self.process))?;
        let referenced = field(&rollup, "Referenced")?.strip_suffix("kB")?.trim();
        referenced.parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Bytes of the median window, the lower one of two middle windows because a program uses more
    /// while it begins. When the process ended before the first window did, bytes of that window.
    /// `None`: the kernel does not say.
    pub fn bytes(mut self) -> Option<u64> {
        self.windows.sort_unstable();
        let middle = self.windows.len().saturating_sub(1) / 2;
        let middle = self.windows.get(middle).copied();
        middle.or(self.current)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    #[test]
    fn memory_that_is_no_longer_used_leaves_it() {
        let tree = Tree::host();
        // The shell keeps what it has read, and waits for more.
        let mut holder = Command::new("tail")
            .args(["-c", "67108864"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut set = WorkingSet::of(Pid::from_raw(holder.id().cast_signed()));
        set.look(&tree);
        if set.current.is_none() {
            println!("skipped: this kernel does not say what was accessed");
        } else {
            let pipe = holder.stdin.as_mut().unwrap();
            pipe.write_all(&vec![1; 64 << 20]).unwrap();
            for _ in 0..3 {
                thread::sleep(WINDOW);
                set.look(&tree);
            }
            let (first, others) = set.windows.split_first().unwrap();
            assert!(*first >= 63 << 20);
            assert!(others.iter().all(|bytes| *bytes < 32 << 20), "{others:?}");
            assert!(set.bytes().unwrap() < 32 << 20);
        }
        holder.kill().unwrap();
        holder.wait().unwrap();
    }

    #[test]
    fn what_is_not_said_is_not_known() {
        let mut set = WorkingSet::of(Pid::from_raw(1));
        set.look(&Tree::at("/nonexistent"));
        assert_eq!(set.bytes(), None);
    }
}
