//! The kernels of GEMV and GER, which process some columns of a matrix from the first row to the
//! last.

use iced_x86::code_asm::{r8, r9, r10, r11, rax, rdi, rdx, rsi};
use iced_x86::{MemoryOperand, Register};

use super::set::Writer;
use super::{at, immediate};
use crate::error::Error;
use crate::parameters::Level2;
use crate::unsafe_columns::Routine;
use crate::vector::Precision;

/// The number of columns that one integer register reaches: at 0, 1 and 2 times the leading
/// dimension.
const REACH: u32 = 3;
/// Registers for the addresses of columns.
const BASES: [Register; 4] = [Register::RSI, Register::RAX, Register::R10, Register::R11];

/// Generate the code of `fn(iterations, a, leading_bytes, numbers, vector, rest)`, see
/// `unsafe_columns`.
///
/// Registers: rdi has the iterations of XUNROLL vectors, rsi the first column, rdx the bytes from
/// one column to the next, rcx a number for each column (for A transposed, the sums, which are
/// written), r8 the vector along the columns, r9 the iterations of one vector.
pub fn level2(
    routine: Routine,
    parameters: &Level2,
    precision: Precision,
    (columns, fused): (u32, bool),
) -> Result<Vec<u8>, Error> {
    let mut kernel = Kernel {
        writer: Writer::new(parameters.vector, precision)?,
        routine,
        rows: parameters.x_unroll,
        columns,
        fused,
        vector_bytes: i64::from(parameters.vector.bytes(precision)),
        number_bytes: i64::from(precision.bytes()),
    };
    kernel.begin()?;
    kernel.loops()?;
    kernel.end()?;
    kernel.writer.finish()
}

struct Kernel {
    writer: Writer,
    routine: Routine,
    /// Vectors of one iteration.
    rows: u32,
    columns: u32,
    fused: bool,
    vector_bytes: i64,
    number_bytes: i64,
}

impl Kernel {
    fn bases(&self) -> u32 {
        self.columns.div_ceil(REACH)
    }

    /// The number of registers before those for the vector: they hold a number of each column in
    /// all lanes, or the sums.
    fn held(&self) -> u32 {
        match self.routine {
            Routine::Transposed => self.columns * self.rows,
            Routine::Plain | Routine::Rank1 => self.columns,
        }
    }

    fn begin(&mut self) -> Result<(), Error> {
        let bases = [rsi, rax, r10, r11];
        for pair in bases.windows(2).take(self.bases() as usize - 1) {
            self.writer.code.lea(pair[1], pair[0] + rdx * 2)?;
            self.writer.code.add(pair[1], rdx)?;
        }
        for register in 0..self.held() {
            if self.routine == Routine::Transposed {
                self.writer.zero(register)?;
            } else {
                let number = at(Register::RCX, i64::from(register) * self.number_bytes);
                self.writer.broadcast(register, number)?;
            }
        }
        Ok(())
    }

    fn loops(&mut self) -> Result<(), Error> {
        for (counter, rows) in [(rdi, self.rows), (r9, 1)] {
            let mut again = self.writer.code.create_label();
            let mut end = self.writer.code.create_label();
            self.writer.code.test(counter, counter)?;
            self.writer.code.je(end)?;
            self.writer.code.set_label(&mut again)?;
            self.iteration(rows)?;
            self.writer.code.sub(counter, 1)?;
            self.writer.code.jne(again)?;
            self.writer.code.set_label(&mut end)?;
            // Two labels need an instruction between them.
            self.writer.code.nop()?;
        }
        Ok(())
    }

    fn iteration(&mut self, rows: u32) -> Result<(), Error> {
        let vector = self.held();
        let place = |row: u32, bytes: i64| at(Register::R8, i64::from(row) * bytes);
        for row in 0..rows {
            self.writer
                .load(vector + row, place(row, self.vector_bytes))?;
        }
        for column in 0..self.columns {
            for row in 0..rows {
                self.entry(column, row)?;
            }
        }
        if self.routine == Routine::Plain {
            for row in 0..rows {
                self.writer
                    .store(place(row, self.vector_bytes), vector + row)?;
            }
        }
        let bytes = immediate(i64::from(rows) * self.vector_bytes)?;
        for base in [rsi, rax, r10, r11].into_iter().take(self.bases() as usize) {
            self.writer.code.add(base, bytes)?;
        }
        self.writer.code.add(r8, bytes)?;
        Ok(())
    }

    /// One vector of the matrix.
    fn entry(&mut self, column: u32, row: u32) -> Result<(), Error> {
        let vector = self.held() + row;
        let loaded = self.held() + self.rows;
        let place = self.place(column, row);
        self.writer.load(loaded, place)?;
        match self.routine {
            Routine::Plain => self.accumulate(vector, loaded, column),
            Routine::Transposed => self.accumulate(column * self.rows + row, loaded, vector),
            Routine::Rank1 if self.fused => {
                self.writer.fused(loaded, vector, column)?;
                self.writer.store(place, loaded)
            }
            Routine::Rank1 => {
                let product = loaded + 1;
                self.writer.multiply(product, vector, column)?;
                self.writer.add(product, loaded)?;
                self.writer.store(place, product)
            }
        }
    }

    /// sum += loaded * factor; `loaded` may be overwritten.
    fn accumulate(&mut self, sum: u32, loaded: u32, factor: u32) -> Result<(), Error> {
        if self.fused {
            return self.writer.fused(sum, loaded, factor);
        }
        self.writer.multiply(loaded, loaded, factor)?;
        self.writer.add(sum, loaded)
    }

    fn place(&self, column: u32, row: u32) -> MemoryOperand {
        let base = BASES[(column / REACH) as usize];
        let offset = i64::from(row) * self.vector_bytes;
        match column % REACH {
            0 => at(base, offset),
            scale => MemoryOperand::with_base_index_scale_displ_size(
                base,
                Register::RDX,
                scale,
                offset,
                1,
            ),
        }
    }

    /// Write the sums of each column, lane by lane.
    fn end(&mut self) -> Result<(), Error> {
        if self.routine != Routine::Transposed {
            return Ok(());
        }
        for column in 0..self.columns {
            let first = column * self.rows;
            for row in 1..self.rows {
                self.writer.add(first, first + row)?;
            }
            let place = at(Register::RCX, i64::from(column) * self.vector_bytes);
            self.writer.store(place, first)?;
        }
        Ok(())
    }
}
