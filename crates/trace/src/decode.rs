//! Finds the few instructions that matter for address translation, by their bytes.
//!
//! Encodings: Intel SDM volume 2. Unrecognised bytes are no special instruction; decoding cannot
//! fail.

/// A watched instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// `mov cr3, r`, with the number of the general register.
    LoadCr3(u8),
    /// `mov cr4, r`: it flushes the TLB.
    LoadCr4,
    /// `mov r, cr2`: the kernel's page-fault handler asks for the address.
    ReadCr2,
    Invlpg(Operand),
    /// INVPCID: the general register with the type, and the address of the descriptor.
    Invpcid(u8, Operand),
    Cpuid,
}

/// A memory operand: the sum of its parts. Registers are numbered as in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Operand {
    /// A general register.
    pub base: Option<u8>,
    /// A general register and the base-2 logarithm of its factor.
    pub index: Option<(u8, u8)>,
    /// A constant; where it is relative to the next instruction, that instruction's address is
    /// already added.
    pub displacement: u64,
}

impl Operand {
    /// The address, from the values of registers.
    pub fn address(self, register: impl Fn(u8) -> u64) -> u64 {
        let base = self.base.map_or(0, &register);
        let index = self
            .index
            .map_or(0, |(number, scale)| register(number) << scale);
        base.wrapping_add(index).wrapping_add(self.displacement)
    }
}

const REX_B: u8 = 1;
const REX_X: u8 = 2;
const REX_R: u8 = 4;

/// The watched instruction at `address`; `None`: the instruction is not watched.
pub fn special(address: u64, bytes: &[u8]) -> Option<Special> {
    let next = address.wrapping_add(bytes.len() as u64);
    let mut bytes = Bytes(bytes);
    let (mut rex, mut operand_size) = (0, false);
    let opcode = loop {
        match bytes.take()? {
            0x66 => operand_size = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0xf0 | 0xf2 | 0xf3 => {}
            prefix @ 0x40..=0x4f => rex = prefix & 0xf,
            0x0f => break bytes.take()?,
            // Operands in FS or GS (64, 65) are ignored too: no kernel invalidates them.
            _ => return None,
        }
    };
    match opcode {
        0xa2 => Some(Special::Cpuid),
        0x20 | 0x22 => control_register(opcode, bytes.take()?, rex),
        0x01 => {
            let modrm = bytes.take()?;
            let memory = modrm >> 6 != 3 && modrm >> 3 & 7 == 7;
            let operand = memory.then(|| operand(modrm, rex, next, &mut bytes))??;
            Some(Special::Invlpg(operand))
        }
        0x38 if operand_size && bytes.take()? == 0x82 => {
            let modrm = bytes.take()?;
            let kind = modrm >> 3 & 7 | if rex & REX_R != 0 { 8 } else { 0 };
            let memory = modrm >> 6 != 3;
            let operand = memory.then(|| operand(modrm, rex, next, &mut bytes))??;
            Some(Special::Invpcid(kind, operand))
        }
        _ => None,
    }
}

/// Does the repeated string instruction store in each iteration? `None`: the instruction is not one.
pub fn repeated_string(bytes: &[u8]) -> Option<bool> {
    let mut repeated = false;
    for byte in bytes {
        match byte {
            0xf2 | 0xf3 => repeated = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 => {}
            // INS, MOVS, STOS
            0x6c | 0x6d | 0xa4 | 0xa5 | 0xaa | 0xab => return repeated.then_some(true),
            // OUTS, CMPS, LODS, SCAS
            0x6e | 0x6f | 0xa6 | 0xa7 | 0xac..=0xaf => return repeated.then_some(false),
            _ => return None,
        }
    }
    None
}

fn control_register(opcode: u8, modrm: u8, rex: u8) -> Option<Special> {
    let control = modrm >> 3 & 7 | if rex & REX_R != 0 { 8 } else { 0 };
    let general = modrm & 7 | if rex & REX_B != 0 { 8 } else { 0 };
    match (opcode, control) {
        (0x20, 2) => Some(Special::ReadCr2),
        (0x22, 3) => Some(Special::LoadCr3(general)),
        (0x22, 4) => Some(Special::LoadCr4),
        _ => None,
    }
}

fn operand(modrm: u8, rex: u8, next: u64, bytes: &mut Bytes<'_>) -> Option<Operand> {
    let extended = |field: u8, bit| field & 7 | if rex & bit != 0 { 8 } else { 0 };
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let mut found = Operand::default();
    let mut wide = mode == 2;
    match (mode, rm) {
        (0, 5) => {
            found.displacement = next.wrapping_add(bytes.signed(4)?);
            return Some(found);
        }
        (_, 4) => {
            let sib = bytes.take()?;
            let index = extended(sib >> 3, REX_X);
            // Register 4 is RSP, which cannot be an index.
            found.index = (index != 4).then_some((index, sib >> 6));
            if mode == 0 && sib & 7 == 5 {
                wide = true;
            } else {
                found.base = Some(extended(sib, REX_B));
            }
        }
        _ => found.base = Some(extended(rm, REX_B)),
    }
    if wide {
        found.displacement = bytes.signed(4)?;
    } else if mode == 1 {
        found.displacement = bytes.signed(1)?;
    }
    Some(found)
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A little-endian number of one or four bytes, sign-extended.
    fn signed(&mut self, count: usize) -> Option<u64> {
        let (field, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        let value = match *field {
            [byte] => i64::from(byte.cast_signed()),
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => return None,
        };
        Some(value.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(number: u8) -> Operand {
        Operand {
            base: Some(number),
            ..Operand::default()
        }
    }

    /// Bytes as the assembler GNU as 2.40 produces them.
    #[test]
    fn repeated_strings() {
        let cases: [(&[u8], Option<bool>); 9] = [
            (&[0xf3, 0xaa], Some(true)),        // rep stosb
            (&[0xf3, 0x48, 0xab], Some(true)),  // rep stosq
            (&[0x66, 0xf3, 0xa5], Some(true)),  // rep movsw
            (&[0x67, 0xf3, 0xa4], Some(true)),  // rep movsb (%esi),(%edi)
            (&[0xf2, 0xae], Some(false)),       // repnz scasb
            (&[0xf3, 0x48, 0xad], Some(false)), // rep lodsq
            (&[0xaa], None),                    // stosb
            (&[0xf3, 0x90], None),              // pause
            (&[0xf3, 0x0f, 0x6f, 0x06], None),  // movdqu (%rsi),%xmm0
        ];
        for (bytes, known) in cases {
            assert_eq!(repeated_string(bytes), known, "{bytes:x?}");
        }
    }

    /// Bytes as the assembler GNU as 2.40 produces them.
    #[test]
    fn known_encodings() {
        let cases: [(&[u8], Option<Special>); 14] = [
            (&[0x0f, 0x22, 0xd8], Some(Special::LoadCr3(0))), // mov %rax,%cr3
            (&[0x41, 0x0f, 0x22, 0xdc], Some(Special::LoadCr3(12))), // mov %r12,%cr3
            (&[0x0f, 0x22, 0xe1], Some(Special::LoadCr4)),    // mov %rcx,%cr4
            (&[0x0f, 0x22, 0xc0], None),                      // mov %rax,%cr0
            (&[0x44, 0x0f, 0x22, 0xc0], None),                // mov %rax,%cr8
            (&[0x41, 0x0f, 0x20, 0xd4], Some(Special::ReadCr2)), // mov %cr2,%r12
            (&[0x0f, 0x20, 0xd8], None),                      // mov %cr3,%rax
            (&[0x0f, 0x01, 0x38], Some(Special::Invlpg(base(0)))), // invlpg (%rax)
            (
                &[0x41, 0x0f, 0x01, 0x3c, 0x24],
                Some(Special::Invlpg(base(12))),
            ), // (%r12)
            (&[0x0f, 0x01, 0xf8], None),                      // swapgs
            (&[0x0f, 0xa2], Some(Special::Cpuid)),
            (
                &[0x66, 0x0f, 0x38, 0x82, 0x04, 0x24], // invpcid (%rsp),%rax
                Some(Special::Invpcid(0, base(4))),
            ),
            (&[0x48, 0x89, 0x07], None), // mov %rax,(%rdi)
            (&[0x0f], None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(special(0x1000, bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn addresses_are_sums() {
        let register = |number: u8| 0x100 * u64::from(number);
        let address = |bytes: &[u8]| match special(0x1000, bytes) {
            Some(Special::Invlpg(operand)) => operand.address(register),
            other => panic!("{other:?}"),
        };
        assert_eq!(address(&[0x0f, 0x01, 0x7b, 0xf8]), 0x300 - 8); // -8(%rbx)
        assert_eq!(address(&[0x0f, 0x01, 0x7c, 0xc8, 0x10]), 0x810); // 16(%rax,%rcx,8)
        assert_eq!(address(&[0x0f, 0x01, 0x3d, 1, 0, 0, 0]), 0x1008); // 1(%rip)
        assert_eq!(
            address(&[0x0f, 0x01, 0x3c, 0x25, 0, 0x10, 0, 0x80]),
            0xffff_ffff_8000_1000
        ); // an absolute address
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(0_u8.., 0..16)) {
            special(0x1000, &bytes);
        }
    }
}
