//! Taking system calls away from a thread (seccomp(2)).

use nix::errno::Errno;
use nix::sys::prctl;

/// The number of the call: the first field of `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const SKIP_UNLESS_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Make these system calls of this thread fail with `errno`, until the thread ends.
///
/// This is no confinement: a call by another architecture's numbers passes. Fails where the kernel
/// has no seccomp, or an outer filter refuses more.
pub fn refuse(calls: &[libc::c_long], errno: Errno) -> Result<(), Errno> {
    // Without this, the kernel accepts filters only from privileged processes.
    prctl::set_no_new_privs()?;
    let mut program = vec![step(LOAD, 0, NUMBER_OFFSET)];
    for call in calls {
        let number = u32::try_from(*call).map_err(|_| Errno::EINVAL)?;
        let refusal = libc::SECCOMP_RET_ERRNO | (errno as u32 & libc::SECCOMP_RET_DATA);
        program.push(step(SKIP_UNLESS_EQUAL, 1, number));
        program.push(step(RETURN, 0, refusal));
    }
    program.push(step(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    Errno::result(result).map(drop)
}

fn step(code: u32, skipped_if_false: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        // All three codes are below 256.
        code: (code & 0xff) as u16,
        jt: 0,
        jf: skipped_if_false,
        k: value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calls_named_are_refused() {
        let inside = std::thread::spawn(|| {
            refuse(&[libc::SYS_times, libc::SYS_getppid], Errno::EDOM).unwrap();
            // SAFETY: neither call takes an argument.
            let refused = unsafe { libc::syscall(libc::SYS_getppid) };
            // SAFETY: as above.
            (refused, Errno::last(), unsafe {
                libc::syscall(libc::SYS_getpid)
            })
        });
        let (refused, errno, pid) = inside.join().unwrap();
        assert_eq!((refused, errno), (-1, Errno::EDOM));
        assert_eq!(pid, i64::from(std::process::id()));
        // Other threads keep the calls. SAFETY: the call takes no argument.
        assert!(unsafe { libc::syscall(libc::SYS_getppid) } >= 0);
    }
}
