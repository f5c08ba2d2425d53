//! arm64: where a system call's number and arguments are. arm64 has only the newer calls, which
//! take a folder's descriptor.

use nix::errno::Errno;
use nix::sys::ptrace::{self, regset::NT_PRSTATUS};
use nix::unistd::Pid;

use super::Call;

/// arm64 has no such call.
pub(super) const OPEN: Option<libc::c_long> = None;

/// Like [`super::REACHING`].
pub(super) const REACHING: &[(libc::c_long, &str)] = &[(libc::SYS_symlinkat, "symlink")];

/// The system call that a traced process is about to make.
///
/// Fails with the errno of ptrace.
pub(super) fn about_to_be_made(pid: Pid) -> Result<Call, Errno> {
    let registers = ptrace::getregset::<NT_PRSTATUS>(pid)?;
    let [first, second, third, ..] = registers.regs;
    Ok(Call {
        // The kernel's calling convention: the number is in x8.
        number: registers.regs[8].cast_signed(),
        arguments: [first, second, third],
    })
}
