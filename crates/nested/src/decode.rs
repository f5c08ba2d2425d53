//! Finds the instructions that change what is counted, by their bytes.
//!
//! Encodings: AMD64 manual, volume 3. Unrecognised bytes are no special instruction; decoding
//! cannot fail.

/// A watched instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// VMRUN: the guest begins.
    Vmrun,
    /// `mov cr3, r`: another address space.
    LoadCr3,
    /// `mov cr4, r`: it empties the TLB.
    LoadCr4,
    /// HLT: the CPU has nothing to do.
    Halt,
    /// One at which KVM may make a guest leave that has nothing to do with paging: CPUID, RDMSR,
    /// WRMSR, VMMCALL, IN, OUT and their string forms.
    Service,
    /// SYSRET or IRET: the kernel goes back to a program, or to what was interrupted.
    Return,
}

const REX: std::ops::RangeInclusive<u8> = 0x40..=0x4f;
const REX_R: u8 = 4;

/// The watched instruction with these bytes; `None`: it is not watched.
pub fn special(bytes: &[u8]) -> Option<Special> {
    let (rex, opcode) = match bytes {
        [rex, rest @ ..] if REX.contains(rex) => (*rex, rest),
        rest => (0, rest),
    };
    match *opcode {
        [0xf4, ..] => Some(Special::Halt),
        [0xcf, ..] | [0x0f, 0x07, ..] => Some(Special::Return),
        [0x0f, 0x01, 0xd8, ..] => Some(Special::Vmrun),
        // Before port I/O the operand size and REP may stand.
        [0x0f, 0x01, 0xd9, ..]
        | [0x0f, 0xa2 | 0x30 | 0x32, ..]
        | [0xe4..=0xe7 | 0xec..=0xef | 0x6c..=0x6f, ..]
        | [0x66 | 0xf3, 0xe5 | 0xe7 | 0xed | 0xef | 0x6c..=0x6f, ..] => Some(Special::Service),
        // Registers 8 and above are others.
        [0x0f, 0x22, modrm, ..] if rex & REX_R == 0 => match modrm >> 3 & 7 {
            3 => Some(Special::LoadCr3),
            4 => Some(Special::LoadCr4),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn instructions_are_told_by_their_bytes() {
        // As GNU as writes them.
        for (bytes, expected) in [
            (&[0x0f, 0x01, 0xd8][..], Some(Special::Vmrun)),
            (&[0x0f, 0x22, 0xd8], Some(Special::LoadCr3)), // mov %rax,%cr3
            (&[0x41, 0x0f, 0x22, 0xdc], Some(Special::LoadCr3)), // mov %r12,%cr3
            (&[0x0f, 0x22, 0xe1], Some(Special::LoadCr4)), // mov %rcx,%cr4
            (&[0xf4], Some(Special::Halt)),
            (&[0x44, 0x0f, 0x22, 0xc0], None), // mov %rax,%cr8
            (&[0x0f, 0x20, 0xd8], None),       // mov %cr3,%rax
            (&[0x0f, 0x01, 0xd9], Some(Special::Service)), // vmmcall
            (&[0x0f, 0xa2], Some(Special::Service)), // cpuid
            (&[0x0f, 0x30], Some(Special::Service)), // wrmsr
            (&[0x66, 0xef], Some(Special::Service)), // out %ax,(%dx)
            (&[0xf3, 0x6e], Some(Special::Service)), // rep outsb
            (&[0xee], Some(Special::Service)), // out %al,(%dx)
            (&[0x48, 0xcf], Some(Special::Return)), // iretq
            (&[0x48, 0x0f, 0x07], Some(Special::Return)), // sysretq
            (&[0x0f, 0x01, 0x3f], None),       // invlpg (%rdi)
            (&[], None),
        ] {
            assert_eq!(special(bytes), expected, "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            special(&bytes);
        }
    }
}
