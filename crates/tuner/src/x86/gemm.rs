//! The kernel of GEMM: a block of C in registers gets the product of two packed panels.

use iced_x86::Register;
use iced_x86::code_asm::{r8, r9, r10, rcx, rdi, rdx, rsi};

use super::set::Writer;
use super::{at, immediate};
use crate::error::Error;
use crate::parameters::Parameters;
use crate::schedule::{Operand, Step, schedule};
use crate::vector::Precision;

const LINE: i64 = 64;

/// Generate the code of `fn(k, a, b, c, leading_bytes, add)`, see `unsafe_micro`.
///
/// Registers: rdi has the remaining steps of K, rsi the panel of A, rdx the panel of B, rcx the
/// block of C, r8 the bytes from one of its columns to the next, r9 whether to add to C.
pub fn gemm(parameters: &Parameters, precision: Precision, copies: u32) -> Result<Vec<u8>, Error> {
    let bytes = parameters.vector.bytes(precision);
    let mut kernel = Kernel {
        writer: Writer::new(parameters.vector, precision)?,
        parameters,
        precision,
        rows: parameters.mu * precision.bytes() / bytes,
        vector_bytes: i64::from(bytes),
        column_bytes: i64::from(parameters.mu * precision.bytes()),
        number_bytes: i64::from(precision.bytes() * copies),
        copied: copies > 1,
    };
    kernel.fetch_c()?;
    for sum in 0..kernel.rows * parameters.nu {
        kernel.writer.zero(sum)?;
    }
    kernel.loops()?;
    kernel.write_c()?;
    kernel.writer.finish()
}

struct Kernel<'a> {
    writer: Writer,
    parameters: &'a Parameters,
    precision: Precision,
    /// Rows of the block of C, in vectors.
    rows: u32,
    vector_bytes: i64,
    /// Bytes of one step of K in A's panel.
    column_bytes: i64,
    /// Bytes of one number in B's panel, with its copies.
    number_bytes: i64,
    /// B's numbers are stored once for each lane, and need no broadcast.
    copied: bool,
}

impl Kernel<'_> {
    fn fetch_c(&mut self) -> Result<(), Error> {
        if !self.parameters.ffetch {
            return Ok(());
        }
        self.writer.code.mov(r10, rcx)?;
        for _ in 0..self.parameters.nu {
            let mut offset = 0;
            while offset < self.column_bytes {
                self.writer.prefetch(at(Register::R10, offset))?;
                offset += LINE;
            }
            // The column need not begin at the start of a cache line.
            self.writer
                .prefetch(at(Register::R10, self.column_bytes - 1))?;
            self.writer.code.add(r10, r8)?;
        }
        Ok(())
    }

    /// KU steps at once, then the rest one by one.
    fn loops(&mut self) -> Result<(), Error> {
        let unrolled = immediate(i64::from(self.parameters.ku))?;
        let mut again = self.writer.code.create_label();
        let mut rest = self.writer.code.create_label();
        let mut one = self.writer.code.create_label();
        let mut end = self.writer.code.create_label();
        if unrolled > 1 {
            self.writer.code.sub(rdi, unrolled)?;
            self.writer.code.jb(rest)?;
            self.writer.code.set_label(&mut again)?;
            self.steps(self.parameters.ku)?;
            self.writer.code.sub(rdi, unrolled)?;
            self.writer.code.jae(again)?;
            self.writer.code.set_label(&mut rest)?;
            self.writer.code.add(rdi, unrolled)?;
        }
        self.writer.code.test(rdi, rdi)?;
        self.writer.code.je(end)?;
        self.writer.code.set_label(&mut one)?;
        self.steps(1)?;
        self.writer.code.sub(rdi, 1)?;
        self.writer.code.jne(one)?;
        self.writer.code.set_label(&mut end)?;
        self.writer.code.test(r9, r9)?;
        Ok(())
    }

    fn steps(&mut self, count: u32) -> Result<(), Error> {
        for step in schedule(self.parameters, self.precision, count) {
            match step {
                Step::Load { register, source } => self.load(register, source)?,
                Step::Fused { sum, a, b } => self.writer.fused(sum, a, b)?,
                Step::Multiply { product, a, b } => self.writer.multiply(product, a, b)?,
                Step::Add { sum, product } => self.writer.add(sum, product)?,
                Step::Prefetch { k } => self.prefetch(k)?,
            }
        }
        let count = i64::from(count);
        let row_bytes = i64::from(self.parameters.nu) * self.number_bytes;
        self.writer
            .code
            .add(rsi, immediate(count * self.column_bytes)?)?;
        self.writer.code.add(rdx, immediate(count * row_bytes)?)?;
        Ok(())
    }

    fn load(&mut self, register: u32, source: Operand) -> Result<(), Error> {
        match source {
            Operand::A { row, k } => {
                let offset = i64::from(k) * self.column_bytes + i64::from(row) * self.vector_bytes;
                self.writer.load(register, at(Register::RSI, offset))
            }
            Operand::B { column, k } => {
                let number = i64::from(k * self.parameters.nu + column);
                let from = at(Register::RDX, number * self.number_bytes);
                if self.copied {
                    self.writer.load(register, from)
                } else {
                    self.writer.broadcast(register, from)
                }
            }
        }
    }

    /// Prefetch the cache lines that begin in one column of A.
    fn prefetch(&mut self, k: u32) -> Result<(), Error> {
        let ahead = i64::from(self.parameters.nfetch * self.parameters.ku + k) * self.column_bytes;
        let first = (ahead + LINE - 1) / LINE * LINE;
        let mut offset = first;
        while offset < ahead + self.column_bytes {
            self.writer.prefetch(at(Register::RSI, offset))?;
            offset += LINE;
        }
        Ok(())
    }

    /// Add the sums to C or overwrite C with them, as the flags say.
    fn write_c(&mut self) -> Result<(), Error> {
        let mut over = self.writer.code.create_label();
        let mut done = self.writer.code.create_label();
        self.writer.code.je(over)?;
        self.columns(true)?;
        self.writer.code.jmp(done)?;
        self.writer.code.set_label(&mut over)?;
        self.columns(false)?;
        self.writer.code.set_label(&mut done)?;
        Ok(())
    }

    fn columns(&mut self, add: bool) -> Result<(), Error> {
        // The pool is free at this point: its first register holds the old values of C.
        let old = self.rows * self.parameters.nu;
        for sum in 0..old {
            let (column, row) = (sum / self.rows, sum % self.rows);
            if column > 0 && row == 0 {
                self.writer.code.add(rcx, r8)?;
            }
            let place = at(Register::RCX, i64::from(row) * self.vector_bytes);
            if add {
                self.writer.load(old, place)?;
                self.writer.add(sum, old)?;
            }
            self.writer.store(place, sum)?;
        }
        Ok(())
    }
}
