//! What programs that this process starts may never do.

use nix::errno::Errno;

/// A privilege by its number in the kernel (`linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// `CAP_DAC_READ_SEARCH`: open any file by its number.
    DacReadSearch = 2,
    /// `CAP_SYS_MODULE`: load modules into the kernel.
    SysModule = 16,
    /// `CAP_SYS_RAWIO`: all memory and all ports.
    SysRawio = 17,
    /// `CAP_SYS_PTRACE`: look into any process and change it.
    SysPtrace = 19,
    /// `CAP_SYS_BOOT`: restart, also into another kernel.
    SysBoot = 22,
    /// `CAP_MKNOD`: make device files.
    Mknod = 27,
}

/// Take a capability from every program that this process starts from now on; it keeps its own
/// (capabilities(7), "Capability bounding set").
///
/// Fails with `EPERM` without `CAP_SETPCAP`, and with `EINVAL` where the kernel does not know it.
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
