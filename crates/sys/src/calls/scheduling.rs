//! Where threads run, and under which policy (sched(7)).

use nix::errno::Errno;

/// The words of a CPU mask: enough for every CPU that a list may name (`cpu_list`).
const MASK_WORDS: usize = 8192 / 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`, the usual policy.
    Other,
    /// `SCHED_FIFO` with this priority.
    Fifo(u8),
}

/// Let a thread run on these CPUs only; 0 is the caller.
///
/// Fails with the errno of the system call; the kernel leaves out CPUs that the thread may not use.
pub fn set_affinity(tid: i32, cpus: &[usize]) -> Result<(), Errno> {
    let mut mask = [0_u64; MASK_WORDS];
    for cpu in cpus {
        let word = mask.get_mut(cpu / 64).ok_or(Errno::EINVAL)?;
        *word |= 1 << (cpu % 64);
    }
    let size = size_of_val(&mask);
    // SAFETY: the kernel reads `size` bytes of the mask, which is a local variable.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size, mask.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Schedule a thread by another policy; 0 is the caller. Its children do not inherit the policy.
///
/// Fails with the errno of the system call.
pub fn set_policy(tid: i32, policy: Policy) -> Result<(), Errno> {
    let (number, priority) = match policy {
        Policy::Other => (libc::SCHED_OTHER, 0),
        Policy::Fifo(priority) => (libc::SCHED_FIFO, i32::from(priority)),
    };
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    let number = number | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads the parameters, which are local. The system call is made directly
    // because it applies to one thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            tid,
            number,
            &raw const parameters,
        )
    };
    Errno::result(result).map(drop)
}

/// Set the nice value of a thread; 0 is the caller.
///
/// Fails with the errno of the system call.
pub fn set_nice(tid: i32, nice: i32) -> Result<(), Errno> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, nice) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_thread_runs_where_it_is_put() {
        let put = std::thread::spawn(|| {
            let tree = Tree::host();
            let cpu = tree.task("/proc/thread-self").unwrap().last_cpu as usize;
            set_affinity(0, &[cpu]).unwrap();
            let allowed = tree.allowed_cpus("/proc/thread-self");
            assert_eq!(allowed, Some(cpu.to_string()));
            assert_eq!(set_affinity(0, &[]), Err(Errno::EINVAL));
            assert_eq!(set_affinity(0, &[9000]), Err(Errno::EINVAL));
            set_policy(0, Policy::Other).unwrap();
        });
        put.join().unwrap();
    }
}
