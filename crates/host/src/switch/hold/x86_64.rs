//! x86-64: where a system call's number and arguments are, and the calls that only it has.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::Call;

/// Opening a file with the path as first argument.
pub(super) const OPEN: Option<libc::c_long> = Some(libc::SYS_open);

/// Like [`super::REACHING`].
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

/// The system call that a traced process is about to make.
///
/// Fails with the errno of ptrace.
pub(super) fn about_to_be_made(pid: Pid) -> Result<Call, Errno> {
    let registers = ptrace::getregs(pid)?;
    Ok(Call {
        number: registers.orig_rax.cast_signed(),
        arguments: [registers.rdi, registers.rsi, registers.rdx],
    })
}
