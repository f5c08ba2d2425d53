//! Numbers of system calls on this architecture.

#![allow(non_upper_case_globals, reason = "the kernel's names")]

#[cfg(not(target_arch = "x86_64"))]
use libc::c_long;

/// The number of a call that this architecture does not have.
#[cfg(not(target_arch = "x86_64"))]
const ABSENT: c_long = -1;

/// Calls that x86 has besides what took their place; newer architectures never had them.
macro_rules! on_x86 {
    ($($call:ident)*) => {
        #[cfg(target_arch = "x86_64")]
        pub use libc::{$($call),*};
        $(
            #[cfg(not(target_arch = "x86_64"))]
            pub const $call: c_long = ABSENT;
        )*
    };
}

on_x86! {
    SYS_access SYS_arch_prctl SYS_creat SYS_dup2 SYS_epoll_wait SYS_eventfd SYS_fork SYS_getdents
    SYS_link SYS_lstat SYS_mkdir SYS_open SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir
    SYS_select SYS_stat SYS_symlink SYS_time SYS_unlink SYS_vfork
}

// libc does not name these three of arm64; include/uapi/asm-generic/unistd.h does.
#[cfg(target_arch = "aarch64")]
pub const SYS_renameat: c_long = 38;
#[cfg(target_arch = "aarch64")]
pub const SYS_sync_file_range: c_long = 84;
#[cfg(target_arch = "aarch64")]
pub const SYS_getrlimit: c_long = 163;
#[cfg(target_arch = "x86_64")]
pub use libc::{SYS_getrlimit, SYS_renameat, SYS_sync_file_range};

pub use libc::{
    SYS_accept, SYS_accept4, SYS_bind, SYS_brk, SYS_chdir, SYS_clock_getres, SYS_clock_gettime,
    SYS_clock_nanosleep, SYS_clone, SYS_clone3, SYS_close, SYS_close_range, SYS_connect,
    SYS_copy_file_range, SYS_dup, SYS_dup3, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2,
    SYS_eventfd2, SYS_execve, SYS_execveat, SYS_faccessat, SYS_faccessat2, SYS_fcntl,
    SYS_fdatasync, SYS_flock, SYS_fstat, SYS_fsync, SYS_futex, SYS_futex_waitv, SYS_getcwd,
    SYS_getdents64, SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getpeername, SYS_getpid, SYS_getppid,
    SYS_getrandom, SYS_getresgid, SYS_getresuid, SYS_getrusage, SYS_getsockname, SYS_getsockopt,
    SYS_gettid, SYS_gettimeofday, SYS_getuid, SYS_ioctl, SYS_kill, SYS_linkat, SYS_listen,
    SYS_lseek, SYS_madvise, SYS_mkdirat, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap,
    SYS_nanosleep, SYS_newfstatat, SYS_openat, SYS_openat2, SYS_pipe2, SYS_pkey_mprotect,
    SYS_ppoll, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_prlimit64, SYS_pselect6, SYS_pwrite64,
    SYS_pwritev, SYS_pwritev2, SYS_read, SYS_readlinkat, SYS_readv, SYS_recvfrom, SYS_recvmmsg,
    SYS_recvmsg, SYS_renameat2, SYS_rseq, SYS_rt_sigaction, SYS_rt_sigprocmask,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_sched_getaffinity, SYS_sched_yield,
    SYS_sendfile, SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_set_robust_list, SYS_set_tid_address,
    SYS_setsockopt, SYS_shutdown, SYS_sigaltstack, SYS_socket, SYS_socketpair, SYS_splice,
    SYS_statfs, SYS_statx, SYS_symlinkat, SYS_sync, SYS_syncfs, SYS_sysinfo, SYS_tgkill, SYS_times,
    SYS_tkill, SYS_umask, SYS_uname, SYS_unlinkat, SYS_wait4, SYS_waitid, SYS_write, SYS_writev,
};
