//! The system calls and mappings that need `unsafe`. Nothing here decides anything.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{ForkResult, Pid};
use perf_event_open_sys::bindings::perf_event_attr;

/// Open a perf event for all that runs on a CPU.
pub fn perf_event_open(
    attributes: &mut perf_event_attr,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    // perf_event_open(2): no process, and PERF_FLAG_FD_CLOEXEC.
    const EVERYBODY: libc::pid_t = -1;
    const CLOEXEC: u64 = 1 << 3;
    let group = group.map_or(-1, |group| group.as_raw_fd());
    // SAFETY: the attributes are a live structure whose size field tells its size.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(attributes, EVERYBODY, cpu, group, CLOEXEC) };
    let fd = Errno::result(fd)?;
    // SAFETY: the call returned a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Let a perf event and its group count, or stop it.
pub fn perf_event_enable(event: BorrowedFd<'_>, enable: bool) -> Result<(), Errno> {
    let fd = event.as_raw_fd();
    // SAFETY: these requests take no pointer.
    let result = unsafe {
        if enable {
            perf_event_open_sys::ioctls::ENABLE(fd, 0)
        } else {
            perf_event_open_sys::ioctls::DISABLE(fd, 0)
        }
    };
    Errno::result(result).map(drop)
}

/// A descriptor that is readable when the process has ended.
pub fn pidfd_open(process: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) };
    let fd = Errno::result(fd)?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the call returned a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ask the kernel to measure how long eBPF programs run, until the descriptor is closed.
pub fn enable_program_statistics() -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes a number.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    let fd = Errno::result(fd)?;
    // SAFETY: the call returned a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor of `owner`'s for as long as `owner` lives.
pub fn borrow<T>(fd: RawFd, _owner: &T) -> BorrowedFd<'_> {
    // SAFETY: callers pass a descriptor that `owner` keeps open.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// What KVM offers its guest (`KVM_CPUID_FEATURES`), when this machine is one of its guests.
pub fn kvm_features() -> Option<u32> {
    use core::arch::x86_64::__cpuid;
    // Kernel documentation, virt/kvm/x86/cpuid: signature at 0x40000000, features at the next leaf.
    const SIGNATURE: [&[u8; 4]; 3] = [b"KVMK", b"VMKV", b"M\0\0\0"];
    const HYPERVISOR: u32 = 1 << 31;
    if __cpuid(1).ecx & HYPERVISOR == 0 {
        return None;
    }
    let leaf = __cpuid(0x4000_0000);
    let found = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes);
    let same = found
        .iter()
        .zip(SIGNATURE)
        .all(|(found, known)| found == known);
    same.then(|| __cpuid(0x4000_0001).eax)
}

/// Start a child that waits for a byte on `gate` and then becomes `argv`.
///
/// When that fails it writes the error's number, as 4 bytes, to `report`, which closes otherwise.
/// Both descriptors must be closed on exec. The child dies with this process.
pub fn fork_gated(
    argv: &[CString],
    gate: BorrowedFd<'_>,
    report: BorrowedFd<'_>,
) -> Result<Pid, Errno> {
    let parent = nix::unistd::getpid();
    // SAFETY: this process has one thread, and the child makes only system calls before exec.
    match unsafe { nix::unistd::fork()? } {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let error = match exec_after(argv, gate, parent) {
                Ok(never) => match never {},
                Err(errno) => errno,
            };
            let _ = nix::unistd::write(report, &(error as i32).to_ne_bytes());
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(127) }
        }
    }
}

fn exec_after(
    argv: &[CString],
    gate: BorrowedFd<'_>,
    parent: Pid,
) -> Result<std::convert::Infallible, Errno> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid() != parent {
        return Err(Errno::ESRCH);
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    // SAFETY: SIG_DFL installs no code; the Rust runtime ignores SIGPIPE, commands do not.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut byte = [0];
    if nix::unistd::read(gate, &mut byte)? == 0 {
        return Err(Errno::ECANCELED);
    }
    let program = argv.first().ok_or(Errno::ENOENT)?;
    nix::unistd::execvp(program, argv)
}
