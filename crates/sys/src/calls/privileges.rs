//! Capabilities that programs started by this process can never have.

use nix::errno::Errno;

/// A capability by its number in the kernel (`linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// `CAP_DAC_READ_SEARCH`: open any file by its number.
    DacReadSearch = 2,
    /// `CAP_SYS_MODULE`: load modules into the kernel.
    SysModule = 16,
    /// `CAP_SYS_RAWIO`: access all memory and all ports.
    SysRawio = 17,
    /// `CAP_SYS_PTRACE`: read and change any process.
    SysPtrace = 19,
    /// `CAP_SYS_BOOT`: restart the machine, also into another kernel.
    SysBoot = 22,
    /// `CAP_MKNOD`: make device files.
    Mknod = 27,
}

/// Take a capability from every program that this process starts from now on; this process keeps
/// its own (capabilities(7), "Capability bounding set").
///
/// Fails with `EPERM` without `CAP_SETPCAP`, and with `EINVAL` where the kernel does not know the
/// capability.
pub fn withhold(capability: Capability) -> Result<(), Errno> {
    let unused: libc::c_ulong = 0;
    // SAFETY: PR_CAPBSET_DROP takes a number and touches no memory of this process.
    let result = unsafe {
        libc::prctl(
            libc::PR_CAPBSET_DROP,
            capability as libc::c_ulong,
            unused,
            unused,
            unused,
        )
    };
    Errno::result(result).map(drop)
}
