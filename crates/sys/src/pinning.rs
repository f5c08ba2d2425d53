//! Which CPU a thread runs on.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

const THIS_THREAD: Pid = Pid::from_raw(0);

/// The CPUs that this thread may use; the error is the kernel's reason.
pub fn cpus() -> Result<Vec<usize>, String> {
    let set = sched_getaffinity(THIS_THREAD)
        .map_err(|errno| format!("sched_getaffinity: {}", errno.desc()))?;
    let found = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
    Ok(found.collect())
}

/// Keep this thread on one CPU; the error is the kernel's reason.
pub fn stay_on(cpu: usize) -> Result<(), String> {
    let refused = |errno: nix::errno::Errno| format!("sched_setaffinity: {}", errno.desc());
    let mut set = CpuSet::new();
    set.set(cpu).map_err(refused)?;
    sched_setaffinity(THIS_THREAD, &set).map_err(refused)
}

/// Stay on the last CPU that this thread may use: the first CPU often serves the interrupts.
///
/// Returns that CPU; the error is the kernel's reason.
pub fn stay_on_last() -> Result<usize, String> {
    let last = *cpus()?.last().ok_or("no CPU may be used")?;
    stay_on(last).map(|()| last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_the_last_cpu_that_it_may_use() {
        let all = cpus().unwrap();
        let on_last = std::thread::spawn(|| (stay_on_last(), cpus())).join();
        let (last, left) = on_last.unwrap();
        assert_eq!(last.as_ref().ok(), all.last());
        assert_eq!(left.unwrap(), [last.unwrap()]);
        assert_eq!(cpus().unwrap(), all, "other threads stay where they are");
    }
}
