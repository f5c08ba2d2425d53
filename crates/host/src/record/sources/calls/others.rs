//! The calls without a class that were made most often.

use libc::c_long;
use serde::Serialize;

/// How many are told.
const TOLD: usize = 10;

/// A call without a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherCall {
    pub number: usize,
    /// Its name; null where this program has none for it.
    pub name: Option<&'static str>,
    /// How often it was made.
    pub count: u64,
}

macro_rules! named {
    ($($call:ident)*) => {
        &[$((libc::$call, stringify!($call))),*]
    };
}

/// Names of calls that programs often make.
const NAMES: &[(c_long, &str)] = named! {
    SYS_exit SYS_exit_group SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_restart_syscall SYS_prctl SYS_seccomp SYS_capget SYS_setsid SYS_setpgid SYS_getpgid
    SYS_getsid SYS_getgroups SYS_setuid SYS_setgid SYS_setresuid SYS_setresgid SYS_getcpu
    SYS_getpriority SYS_setpriority SYS_sched_setaffinity SYS_sched_setscheduler
    SYS_sched_getparam SYS_membarrier SYS_setitimer SYS_timer_create SYS_timer_settime
    SYS_timerfd_create SYS_timerfd_settime SYS_signalfd4 SYS_epoll_create1 SYS_inotify_init1
    SYS_inotify_add_watch SYS_pidfd_open SYS_memfd_create SYS_io_uring_enter SYS_fchdir
    SYS_fstatfs SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat SYS_truncate
    SYS_ftruncate SYS_fallocate SYS_fadvise64 SYS_readahead SYS_msync SYS_mincore SYS_mlock
    SYS_mknodat SYS_mount SYS_umount2 SYS_unshare SYS_setns SYS_ptrace SYS_bpf
    SYS_perf_event_open SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr
    SYS_flistxattr SYS_setxattr SYS_fsetxattr SYS_io_submit SYS_io_getevents SYS_tee
    SYS_vmsplice SYS_process_vm_readv
};

fn name(number: usize) -> Option<&'static str> {
    let mut names = NAMES.iter();
    let found = names.find(|(known, _)| usize::try_from(*known) == Ok(number));
    found.and_then(|(_, name)| name.strip_prefix("SYS_"))
}

/// The calls that were made most often, by counts in the order of their numbers.
pub fn most_frequent(counts: &[u64]) -> Vec<OtherCall> {
    let counted = counts.iter().copied().enumerate();
    let mut found: Vec<OtherCall> = counted
        .filter(|(_, count)| *count > 0)
        .map(|(number, count)| OtherCall {
            number,
            name: name(number),
            count,
        })
        .collect();
    found.sort_by_key(|call| std::cmp::Reverse(call.count));
    found.truncate(TOLD);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sources::calls::classes::{NUMBERS, without_class};

    #[test]
    fn the_most_frequent_calls_come_first_and_are_named() {
        let mut counts = vec![0; NUMBERS];
        let exit = usize::try_from(libc::SYS_exit_group).unwrap();
        counts[exit] = 5;
        for (number, count) in counts.iter_mut().skip(NUMBERS - 10).enumerate() {
            *count = 10 + number as u64;
        }
        let found = most_frequent(&counts);
        let told: Vec<u64> = found.iter().map(|call| call.count).collect();
        assert_eq!(told, [19, 18, 17, 16, 15, 14, 13, 12, 11, 10]);
        assert_eq!(found[0].number, NUMBERS - 1);
        assert_eq!(found[0].name, None);
        counts[NUMBERS - 1] = 0;
        let last = most_frequent(&counts).pop().unwrap();
        assert_eq!((last.number, last.name), (exit, Some("exit_group")));
        assert_eq!(most_frequent(&[0; NUMBERS]), []);
    }

    #[test]
    fn only_calls_without_a_class_have_names_here() {
        let without: Vec<usize> = without_class().collect();
        for (number, name) in NAMES {
            assert!(
                without.contains(&usize::try_from(*number).unwrap()),
                "{name}"
            );
        }
    }
}
