//! Which class each system call is of. Every class is one column.

use libc::c_long;

#[allow(clippy::wildcard_imports, reason = "the names are in the table below")]
use super::numbers::*;

/// Numbers that the tables of the programs have: `CALLS` of calls.bpf.c.
pub const NUMBERS: usize = 512;

/// System calls that cost alike.
pub struct Class {
    /// The part of the column's name after `calls.`.
    pub name: &'static str,
    /// Which calls, in a few words.
    pub about: &'static str,
    /// The calls whose flags do not put them in another class.
    pub calls: &'static [c_long],
    /// Calls of other classes that their flags put in this one.
    pub flagged: &'static [(c_long, Rule)],
}

/// How the program reads the flags of a call; `enum rule` of calls.bpf.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Rule {
    Open = 1,
    Openat = 2,
    Openat2 = 3,
    Newfstatat = 4,
    Statx = 5,
    Unlinkat = 6,
    Clone = 7,
    Clone3 = 8,
    Clock = 9,
    Reading = 10,
}

/// Calls whose results are numbers of bytes.
pub const READS: &[c_long] = &[SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_preadv2];
pub const ENTRIES: &[c_long] = &[SYS_getdents, SYS_getdents64];
pub const WRITES: &[c_long] = &[
    SYS_write,
    SYS_writev,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_splice,
];

const fn class(name: &'static str, about: &'static str, calls: &'static [c_long]) -> Class {
    Class {
        name,
        about,
        calls,
        flagged: &[],
    }
}

/// The class of calls that are made only because there is no vDSO.
pub const CLOCK: &str = "clock";

/// All classes; a call without one is counted as `other`.
pub const CLASSES: [Class; 33] = [
    class(
        "null",
        "getpid, gettid, getppid, get*uid, get*gid, umask, getcwd, uname, sched_yield, getrlimit, \
         prlimit64, set_robust_list, rseq, set_tid_address, arch_prctl, sched_getaffinity, \
         getrandom, sysinfo, times, getrusage, sigaltstack",
        &[
            SYS_getpid,
            SYS_gettid,
            SYS_getppid,
            SYS_getuid,
            SYS_geteuid,
            SYS_getresuid,
            SYS_getgid,
            SYS_getegid,
            SYS_getresgid,
            SYS_umask,
            SYS_getcwd,
            SYS_uname,
            SYS_sched_yield,
            SYS_getrlimit,
            SYS_prlimit64,
            SYS_set_robust_list,
            SYS_rseq,
            SYS_set_tid_address,
            SYS_arch_prctl,
            SYS_sched_getaffinity,
            SYS_getrandom,
            SYS_sysinfo,
            SYS_times,
            SYS_getrusage,
            SYS_sigaltstack,
        ],
    ),
    class(
        "clock_call",
        "readings of a clock by the kernel, not by the vDSO: clock_gettime, clock_getres, \
         gettimeofday, time",
        &[
            SYS_clock_gettime,
            SYS_clock_getres,
            SYS_gettimeofday,
            SYS_time,
        ],
    ),
    Class {
        name: CLOCK,
        about: "readings of clocks that the vDSO has, while it is taken away from programs \
                (vtax explain): clock_gettime, clock_getres, gettimeofday, time",
        calls: &[],
        flagged: &[
            (SYS_clock_gettime, Rule::Clock),
            (SYS_clock_getres, Rule::Clock),
            (SYS_gettimeofday, Rule::Reading),
            (SYS_time, Rule::Reading),
        ],
    },
    Class {
        name: "fstat",
        about: "fstat, and newfstatat and statx of an open file (AT_EMPTY_PATH)",
        calls: &[SYS_fstat],
        flagged: &[(SYS_newfstatat, Rule::Newfstatat), (SYS_statx, Rule::Statx)],
    },
    class(
        "fcntl",
        "fcntl, ioctl, lseek, dup*, epoll_ctl, flock, pipe*, eventfd*",
        &[
            SYS_fcntl,
            SYS_ioctl,
            SYS_lseek,
            SYS_dup,
            SYS_dup2,
            SYS_dup3,
            SYS_epoll_ctl,
            SYS_flock,
            SYS_pipe,
            SYS_pipe2,
            SYS_eventfd,
            SYS_eventfd2,
        ],
    ),
    class(
        "stat",
        "stat, lstat, newfstatat, statx, access, faccessat*, chdir, statfs",
        &[
            SYS_stat,
            SYS_lstat,
            SYS_newfstatat,
            SYS_statx,
            SYS_access,
            SYS_faccessat,
            SYS_faccessat2,
            SYS_chdir,
            SYS_statfs,
        ],
    ),
    class(
        "open",
        "open, openat, openat2, without O_CREAT",
        &[SYS_open, SYS_openat, SYS_openat2],
    ),
    Class {
        name: "create",
        about: "open, openat, openat2 with O_CREAT (also of a file that exists), creat",
        calls: &[SYS_creat],
        flagged: &[
            (SYS_open, Rule::Open),
            (SYS_openat, Rule::Openat),
            (SYS_openat2, Rule::Openat2),
        ],
    },
    class("close", "close, close_range", &[SYS_close, SYS_close_range]),
    class("getdents", "getdents, getdents64", ENTRIES),
    class(
        "readlink",
        "readlink, readlinkat",
        &[SYS_readlink, SYS_readlinkat],
    ),
    class("read", "read, readv, pread*", READS),
    class(
        "write",
        "write, writev, pwrite*, and sendfile, copy_file_range, splice",
        WRITES,
    ),
    class("unlink", "unlink, unlinkat", &[SYS_unlink, SYS_unlinkat]),
    class(
        "rename",
        "rename*",
        &[SYS_rename, SYS_renameat, SYS_renameat2],
    ),
    Class {
        name: "mkdir",
        about: "mkdir*, rmdir, unlinkat of a folder, symlink*, link*",
        calls: &[
            SYS_mkdir,
            SYS_mkdirat,
            SYS_rmdir,
            SYS_symlink,
            SYS_symlinkat,
            SYS_link,
            SYS_linkat,
        ],
        flagged: &[(SYS_unlinkat, Rule::Unlinkat)],
    },
    class(
        "fsync",
        "fsync, fdatasync, sync, syncfs, sync_file_range",
        &[
            SYS_fsync,
            SYS_fdatasync,
            SYS_sync,
            SYS_syncfs,
            SYS_sync_file_range,
        ],
    ),
    class("mmap", "mmap, mremap", &[SYS_mmap, SYS_mremap]),
    class("munmap", "munmap", &[SYS_munmap]),
    class(
        "mprotect",
        "mprotect, pkey_mprotect, madvise",
        &[SYS_mprotect, SYS_pkey_mprotect, SYS_madvise],
    ),
    class("brk", "brk", &[SYS_brk]),
    class(
        "fork",
        "fork, vfork, and clone, clone3 of a process",
        &[SYS_fork, SYS_vfork, SYS_clone, SYS_clone3],
    ),
    Class {
        name: "thread",
        about: "clone, clone3 of a thread (CLONE_THREAD)",
        calls: &[],
        flagged: &[(SYS_clone, Rule::Clone), (SYS_clone3, Rule::Clone3)],
    },
    class(
        "exec",
        "execve, execveat, failed ones too",
        &[SYS_execve, SYS_execveat],
    ),
    class("signal_install", "rt_sigaction", &[SYS_rt_sigaction]),
    class("signal_mask", "rt_sigprocmask", &[SYS_rt_sigprocmask]),
    class(
        "signal",
        "kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo",
        &[
            SYS_kill,
            SYS_tkill,
            SYS_tgkill,
            SYS_rt_sigqueueinfo,
            SYS_rt_tgsigqueueinfo,
        ],
    ),
    class(
        "sleep",
        "nanosleep, clock_nanosleep",
        &[SYS_nanosleep, SYS_clock_nanosleep],
    ),
    class(
        "poll",
        "poll, ppoll, select, pselect6",
        &[SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6],
    ),
    class(
        "epoll",
        "epoll_wait, epoll_pwait*",
        &[SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2],
    ),
    class("futex", "futex, futex_waitv", &[SYS_futex, SYS_futex_waitv]),
    class(
        "socket",
        "socket, socketpair, bind, listen, accept*, connect, send*, recv*, shutdown, getsockname, \
         getpeername, getsockopt, setsockopt",
        &[
            SYS_socket,
            SYS_socketpair,
            SYS_bind,
            SYS_listen,
            SYS_accept,
            SYS_accept4,
            SYS_connect,
            SYS_sendto,
            SYS_sendmsg,
            SYS_sendmmsg,
            SYS_recvfrom,
            SYS_recvmsg,
            SYS_recvmmsg,
            SYS_shutdown,
            SYS_getsockname,
            SYS_getpeername,
            SYS_getsockopt,
            SYS_setsockopt,
        ],
    ),
    class("wait", "wait4, waitid", &[SYS_wait4, SYS_waitid]),
];

/// The elements of the programs' tables that these calls have, without those that this architecture
/// lacks.
pub fn indexes(calls: &[c_long]) -> impl Iterator<Item = usize> {
    calls
        .iter()
        .filter_map(|number| usize::try_from(*number).ok())
        .filter(|index| *index < NUMBERS)
}

/// How the flags of calls are read, by their numbers.
pub fn rules() -> impl Iterator<Item = (usize, Rule)> {
    let flagged = CLASSES.iter().flat_map(|class| class.flagged);
    flagged.filter_map(|(number, rule)| Some((usize::try_from(*number).ok()?, *rule)))
}

/// The numbers that no class has.
pub fn without_class() -> impl Iterator<Item = usize> {
    let named: Vec<usize> = CLASSES
        .iter()
        .flat_map(|class| indexes(class.calls))
        .collect();
    (0..NUMBERS).filter(move |index| !named.contains(index))
}
