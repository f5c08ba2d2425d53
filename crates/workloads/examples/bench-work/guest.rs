//! A guest of a few instructions in real mode, each step of which is an event for KVM.

use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use crate::sys::{self, PAGE_BYTES, Page};

/// Where the program is; page 0 stays empty.
const ADDRESS: u64 = PAGE_BYTES as u64;
/// Bit 1 of the flags is always set (Intel SDM volume 1, 3.4.3).
const FLAGS: u64 = 2;
/// Steps of the programs with a counter between two exits to this process: all values of SI.
const STEPS: u64 = 1 << 16;

/// Why there is no guest, or no guest any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("/dev/kvm cannot be used: {0}")]
    Unusable(kvm_ioctls::Error),
    #[error("KVM refused to {0}: {1}")]
    Refused(&'static str, kvm_ioctls::Error),
    #[error("the guest stopped with {0}, which its program never asks for")]
    Stopped(String),
}

/// What the guest does in its loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// Writes to a port: each write exits to this process.
    Port,
    /// CPUID, which KVM always handles itself.
    Cpuid,
    /// Nothing but the loop.
    Count,
}

impl Instruction {
    fn program(self) -> &'static [u8] {
        match self {
            // again: out dx, al; jmp again
            Self::Port => &[0xee, 0xeb, 0xfd],
            // begin: mov si, 0; again: cpuid; dec si; jnz again; out dx, al; jmp begin
            Self::Cpuid => &[
                0xbe, 0x00, 0x00, 0x0f, 0xa2, 0x4e, 0x75, 0xfb, 0xee, 0xeb, 0xf5,
            ],
            // begin: mov si, 0; again: dec si; jnz again; out dx, al; jmp begin
            Self::Count => &[0xbe, 0x00, 0x00, 0x4e, 0x75, 0xfd, 0xee, 0xeb, 0xf7],
        }
    }

    /// Steps between two exits of the guest to this process.
    fn steps(self) -> u64 {
        match self {
            Self::Port => 1,
            Self::Cpuid | Self::Count => STEPS,
        }
    }
}

/// A virtual machine with one CPU.
pub struct Guest {
    cpu: VcpuFd,
    steps: u64,
    _machine: VmFd,
}

impl Guest {
    pub fn new(instruction: Instruction) -> Result<Self, Error> {
        let refused = |what| move |error| Error::Refused(what, error);
        let kvm = Kvm::new().map_err(Error::Unusable)?;
        let machine = kvm.create_vm().map_err(Error::Unusable)?;
        let mut page = Box::new(Page([0; PAGE_BYTES]));
        for (byte, code) in page.0.iter_mut().zip(instruction.program()) {
            *byte = *code;
        }
        sys::show(&machine, page, ADDRESS).map_err(refused("show it memory"))?;
        let cpu = machine.create_vcpu(0).map_err(refused("make a CPU"))?;
        let mut special = cpu.get_sregs().map_err(refused("tell its state"))?;
        (special.cs.base, special.cs.selector) = (0, 0);
        cpu.set_sregs(&special).map_err(refused("set its state"))?;
        let mut general = cpu.get_regs().map_err(refused("tell its registers"))?;
        (general.rip, general.rflags) = (ADDRESS, FLAGS);
        cpu.set_regs(&general)
            .map_err(refused("set its registers"))?;
        Ok(Self {
            cpu,
            steps: instruction.steps(),
            _machine: machine,
        })
    }

    /// Run until at least `steps` steps are done; returns how many were.
    pub fn run(&mut self, steps: u64) -> Result<u64, Error> {
        let times = steps.div_ceil(self.steps);
        for _ in 0..times {
            match self.cpu.run() {
                Ok(VcpuExit::IoOut(..)) => {}
                Ok(other) => return Err(Error::Stopped(format!("{other:?}"))),
                Err(error) => return Err(Error::Refused("run it", error)),
            }
        }
        Ok(times * self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the guests' steps where there is KVM; elsewhere the error must say that KVM is absent.
    #[test]
    fn every_guest_does_at_least_what_is_asked() {
        for instruction in [Instruction::Port, Instruction::Cpuid, Instruction::Count] {
            match Guest::new(instruction) {
                Ok(mut guest) => {
                    let whole = instruction.steps();
                    assert_eq!(guest.run(whole + 1).unwrap(), 2 * whole);
                }
                Err(Error::Unusable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
