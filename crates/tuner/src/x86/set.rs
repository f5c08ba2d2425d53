//! The instructions of each instruction set: the encoding of each line of a kernel.

use iced_x86::code_asm::CodeAssembler;
use iced_x86::{Code, Instruction, MemoryOperand, Register};

use crate::error::Error;
use crate::vector::{Precision, Vector};

/// Encodes one kernel.
pub struct Writer {
    /// The assembler, for integers and jumps.
    pub code: CodeAssembler,
    set: Set,
    first: Register,
}

/// The instructions of one instruction set and precision.
struct Set {
    load: Code,
    store: Code,
    broadcast: Code,
    /// The instruction that copies the lowest lane into all lanes after a load of one number, with
    /// its immediate operand, if it has one.
    spread: Option<(Code, Option<u32>)>,
    multiply: Code,
    add: Code,
    /// The fused multiply-add; `None`: instructions have two operands, and there is no fused
    /// multiply-add.
    fused: Option<Code>,
    zero: Code,
    copy: Code,
}

impl Set {
    #[rustfmt::skip]
    #[allow(clippy::enum_glob_use, reason = "a table, whose names say what they are")]
    fn of(vector: Vector, precision: Precision) -> Result<Self, Error> {
        use Code::*;
        let set = |load, store, broadcast, spread, multiply, add, fused, zero, copy| Set {
            load, store, broadcast, spread, multiply, add, fused, zero, copy,
        };
        Ok(match (vector, precision) {
            (Vector::Portable, _) => return Err(Error::NoVector(vector)),
            (Vector::Scalar, Precision::Double) => set(
                Movsd_xmm_xmmm64, Movsd_xmmm64_xmm, Movsd_xmm_xmmm64, None,
                Mulsd_xmm_xmmm64, Addsd_xmm_xmmm64, None, Xorps_xmm_xmmm128, Movaps_xmm_xmmm128,
            ),
            (Vector::Scalar, Precision::Single) => set(
                Movss_xmm_xmmm32, Movss_xmmm32_xmm, Movss_xmm_xmmm32, None,
                Mulss_xmm_xmmm32, Addss_xmm_xmmm32, None, Xorps_xmm_xmmm128, Movaps_xmm_xmmm128,
            ),
            (Vector::Sse2, Precision::Double) => set(
                Movups_xmm_xmmm128, Movups_xmmm128_xmm, Movsd_xmm_xmmm64,
                Some((Unpcklpd_xmm_xmmm128, None)),
                Mulpd_xmm_xmmm128, Addpd_xmm_xmmm128, None, Xorps_xmm_xmmm128, Movaps_xmm_xmmm128,
            ),
            (Vector::Sse2, Precision::Single) => set(
                Movups_xmm_xmmm128, Movups_xmmm128_xmm, Movss_xmm_xmmm32,
                Some((Shufps_xmm_xmmm128_imm8, Some(0))),
                Mulps_xmm_xmmm128, Addps_xmm_xmmm128, None, Xorps_xmm_xmmm128, Movaps_xmm_xmmm128,
            ),
            (Vector::Avx2, Precision::Double) => set(
                VEX_Vmovupd_ymm_ymmm256, VEX_Vmovupd_ymmm256_ymm, VEX_Vbroadcastsd_ymm_m64, None,
                VEX_Vmulpd_ymm_ymm_ymmm256, VEX_Vaddpd_ymm_ymm_ymmm256,
                Some(VEX_Vfmadd231pd_ymm_ymm_ymmm256),
                VEX_Vxorpd_ymm_ymm_ymmm256, VEX_Vmovapd_ymm_ymmm256,
            ),
            (Vector::Avx2, Precision::Single) => set(
                VEX_Vmovups_ymm_ymmm256, VEX_Vmovups_ymmm256_ymm, VEX_Vbroadcastss_ymm_m32, None,
                VEX_Vmulps_ymm_ymm_ymmm256, VEX_Vaddps_ymm_ymm_ymmm256,
                Some(VEX_Vfmadd231ps_ymm_ymm_ymmm256),
                VEX_Vxorps_ymm_ymm_ymmm256, VEX_Vmovaps_ymm_ymmm256,
            ),
            (Vector::Avx512, Precision::Double) => set(
                EVEX_Vmovupd_zmm_k1z_zmmm512, EVEX_Vmovupd_zmmm512_k1z_zmm,
                EVEX_Vbroadcastsd_zmm_k1z_xmmm64, None,
                EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er,
                Some(EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er),
                EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64, EVEX_Vmovapd_zmm_k1z_zmmm512,
            ),
            (Vector::Avx512, Precision::Single) => set(
                EVEX_Vmovups_zmm_k1z_zmmm512, EVEX_Vmovups_zmmm512_k1z_zmm,
                EVEX_Vbroadcastss_zmm_k1z_xmmm32, None,
                EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er,
                Some(EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er),
                EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64, EVEX_Vmovaps_zmm_k1z_zmmm512,
            ),
        })
    }
}

impl Writer {
    pub fn new(vector: Vector, precision: Precision) -> Result<Self, Error> {
        let first = match vector {
            Vector::Avx512 => Register::ZMM0,
            Vector::Avx2 => Register::YMM0,
            _ => Register::XMM0,
        };
        Ok(Self {
            code: CodeAssembler::new(64)?,
            set: Set::of(vector, precision)?,
            first,
        })
    }

    fn vector(&self, number: u32) -> Register {
        self.first + number
    }

    fn push(&mut self, instruction: Instruction) -> Result<(), Error> {
        Ok(self.code.add_instruction(instruction)?)
    }

    /// register = memory, at any alignment.
    pub fn load(&mut self, register: u32, from: MemoryOperand) -> Result<(), Error> {
        let instruction = Instruction::with2(self.set.load, self.vector(register), from)?;
        self.push(instruction)
    }

    /// memory = register.
    pub fn store(&mut self, to: MemoryOperand, register: u32) -> Result<(), Error> {
        let instruction = Instruction::with2(self.set.store, to, self.vector(register))?;
        self.push(instruction)
    }

    /// All lanes of register = one number.
    pub fn broadcast(&mut self, register: u32, from: MemoryOperand) -> Result<(), Error> {
        let register = self.vector(register);
        let instruction = Instruction::with2(self.set.broadcast, register, from)?;
        self.push(instruction)?;
        match self.set.spread {
            None => Ok(()),
            Some((code, None)) => self.push(Instruction::with2(code, register, register)?),
            Some((code, Some(order))) => {
                self.push(Instruction::with3(code, register, register, order)?)
            }
        }
    }

    /// register = 0.
    pub fn zero(&mut self, register: u32) -> Result<(), Error> {
        self.binary(self.set.zero, register, register, register)
    }

    /// product = a * b; `product` may be `a` or `b`.
    pub fn multiply(&mut self, product: u32, a: u32, b: u32) -> Result<(), Error> {
        self.binary(self.set.multiply, product, a, b)
    }

    /// sum += term.
    pub fn add(&mut self, sum: u32, term: u32) -> Result<(), Error> {
        self.binary(self.set.add, sum, sum, term)
    }

    /// sum += a * b, rounded once.
    pub fn fused(&mut self, sum: u32, a: u32, b: u32) -> Result<(), Error> {
        let code = self
            .set
            .fused
            .ok_or_else(|| Error::Encode("no FMA".to_owned()))?;
        self.binary(code, sum, a, b)
    }

    /// A commutative operation, in its two-operand or three-operand form.
    fn binary(&mut self, code: Code, to: u32, a: u32, b: u32) -> Result<(), Error> {
        let (target, left, right) = (self.vector(to), self.vector(a), self.vector(b));
        if self.set.fused.is_some() {
            return self.push(Instruction::with3(code, target, left, right)?);
        }
        let other = if to == b { left } else { right };
        if to != a && to != b {
            self.push(Instruction::with2(self.set.copy, target, left)?)?;
        }
        self.push(Instruction::with2(code, target, other)?)
    }

    /// Bring the line of an address into L1.
    pub fn prefetch(&mut self, at: MemoryOperand) -> Result<(), Error> {
        self.push(Instruction::with1(Code::Prefetcht0_m8, at)?)
    }

    /// Return to the caller. The upper halves of registers must be zero, otherwise SSE code is
    /// slow.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        if self.first != Register::XMM0 {
            self.code.vzeroupper()?;
        }
        self.code.ret()?;
        Ok(self.code.assemble(0)?)
    }
}
