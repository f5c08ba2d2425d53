//! x86-64: where a system call's number and arguments are, and the calls that only it has.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::Call;

/// Opening with a path first.
pub(super) const OPEN: Option<libc::c_long> = Some(libc::SYS_open);

/// As [`super::REACHING`].
pub(super) const REACHING: &[(libc::c_long, &str)] = &[
    (libc::SYS_creat, "open"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_mknod, "mknod"),
    (libc::SYS_symlink, "symlink"),
    (libc::SYS_fork, "fork"),
    (libc::SYS_vfork, "fork"),
];

/// The call at whose beginning a traced process stands.
///
/// Fails with the errno of ptrace.
pub(super) fn about_to_be_made(pid: Pid) -> Result<Call, Errno> {
    let registers = ptrace::getregs(pid)?;
    Ok(Call {
        number: registers.orig_rax.cast_signed(),
        arguments: [registers.rdi, registers.rsi, registers.rdx],
    })
}
