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
