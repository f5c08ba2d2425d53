//! Checks arguments; the first wrong argument is reported by its position in the Fortran routine.

use std::ffi::c_int;

/// Position of a wrong argument, from 1, in the Fortran routine: what XERBLA is called with.
pub type Position = c_int;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    pub rows: usize,
    pub columns: usize,
    /// The distance from one column to the next: at least the number of rows.
    pub leading: usize,
}

impl Stored {
    /// How many numbers lie from its first to its last, both included.
    pub fn numbers(&self) -> usize {
        match (self.rows, self.columns) {
            (0, _) | (_, 0) => 0,
            (rows, columns) => (columns - 1) * self.leading + rows,
        }
    }
}

/// A stored vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spaced {
    /// How many numbers it has.
    pub count: usize,
    /// The distance from one number to the next; below 0: from the end on.
    pub increment: isize,
}

impl Spaced {
    /// How many numbers lie from its first to its last, both included.
    pub fn numbers(&self) -> usize {
        match self.count {
            0 => 0,
            count => (count - 1) * self.increment.unsigned_abs() + 1,
        }
    }
}

/// Does the letter mean transposed? `None`: BLAS has no such letter. For real numbers C is the same
/// as T.
pub fn transposed(letter: u8) -> Option<bool> {
    match letter.to_ascii_uppercase() {
        b'N' => Some(false),
        b'T' | b'C' => Some(true),
        _ => None,
    }
}

/// Unchecked arguments of GEMM.
#[derive(Debug, Clone, Copy)]
pub struct GemmArguments {
    /// TRANSA and TRANSB; `None`: BLAS has no such letter.
    pub transposed: [Option<bool>; 2],
    /// M, N and K.
    pub sizes: [c_int; 3],
    /// LDA, LDB and LDC.
    pub leading: [c_int; 3],
}

/// Checked arguments of GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemmShape {
    /// Whether A and B are transposed.
    pub transposed: [bool; 2],
    /// Columns of op(A), which are rows of op(B).
    pub k: usize,
    pub a: Stored,
    pub b: Stored,
    pub c: Stored,
}

impl GemmArguments {
    /// The shape, or the position of the first wrong argument, in the order of `dgemm.f`.
    pub fn check(&self) -> Result<GemmShape, Position> {
        let transposed = [self.transposed[0].ok_or(1)?, self.transposed[1].ok_or(2)?];
        let m = size(self.sizes[0], 3)?;
        let n = size(self.sizes[1], 4)?;
        let k = size(self.sizes[2], 5)?;
        Ok(GemmShape {
            transposed,
            k,
            a: stored(transposed[0], (m, k), self.leading[0], 8)?,
            b: stored(transposed[1], (k, n), self.leading[1], 10)?,
            c: stored(false, (m, n), self.leading[2], 13)?,
        })
    }
}

/// Unchecked arguments of GEMV.
#[derive(Debug, Clone, Copy)]
pub struct GemvArguments {
    /// TRANS; `None`: BLAS has no such letter.
    pub transposed: Option<bool>,
    /// M and N.
    pub sizes: [c_int; 2],
    /// LDA.
    pub leading: c_int,
    /// INCX and INCY.
    pub increments: [c_int; 2],
}

/// Checked arguments of GEMV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemvShape {
    pub transposed: bool,
    pub a: Stored,
    pub x: Spaced,
    pub y: Spaced,
}

impl GemvArguments {
    /// The shape, or the position of the first wrong argument, in the order of `dgemv.f`.
    pub fn check(&self) -> Result<GemvShape, Position> {
        let transposed = self.transposed.ok_or(1)?;
        let m = size(self.sizes[0], 2)?;
        let n = size(self.sizes[1], 3)?;
        let (x, y) = if transposed { (m, n) } else { (n, m) };
        Ok(GemvShape {
            transposed,
            a: stored(false, (m, n), self.leading, 6)?,
            x: spaced(x, self.increments[0], 8)?,
            y: spaced(y, self.increments[1], 11)?,
        })
    }
}

/// Unchecked arguments of GER.
#[derive(Debug, Clone, Copy)]
pub struct GerArguments {
    /// M and N.
    pub sizes: [c_int; 2],
    /// INCX and INCY.
    pub increments: [c_int; 2],
    /// LDA.
    pub leading: c_int,
}

/// Checked arguments of GER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GerShape {
    pub x: Spaced,
    pub y: Spaced,
    pub a: Stored,
}

impl GerArguments {
    /// The shape, or the position of the first wrong argument, in the order of `dger.f`.
    pub fn check(&self) -> Result<GerShape, Position> {
        let m = size(self.sizes[0], 1)?;
        let n = size(self.sizes[1], 2)?;
        Ok(GerShape {
            x: spaced(m, self.increments[0], 5)?,
            y: spaced(n, self.increments[1], 7)?,
            a: stored(false, (m, n), self.leading, 9)?,
        })
    }
}

fn size(given: c_int, position: Position) -> Result<usize, Position> {
    usize::try_from(given).map_err(|_| position)
}

fn stored(
    transposed: bool,
    (rows, columns): (usize, usize),
    leading: c_int,
    position: Position,
) -> Result<Stored, Position> {
    let (rows, columns) = if transposed {
        (columns, rows)
    } else {
        (rows, columns)
    };
    let leading = size(leading, position)?;
    if leading < rows.max(1) {
        return Err(position);
    }
    Ok(Stored {
        rows,
        columns,
        leading,
    })
}

fn spaced(count: usize, increment: c_int, position: Position) -> Result<Spaced, Position> {
    let increment = isize::try_from(increment).map_err(|_| position)?;
    if increment == 0 {
        return Err(position);
    }
    Ok(Spaced { count, increment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_of_either_case() {
        let found = b"NntTcCXR\0".map(transposed);
        let (no, yes) = (Some(false), Some(true));
        assert_eq!(found, [no, no, yes, yes, yes, yes, None, None, None]);
    }

    fn gemm() -> GemmArguments {
        GemmArguments {
            transposed: [Some(false), Some(true)],
            sizes: [2, 3, 4],
            leading: [2, 3, 5],
        }
    }

    #[test]
    fn a_shape_is_that_of_what_is_stored() {
        let shape = gemm().check().unwrap();
        let stored = |rows, columns, leading| Stored {
            rows,
            columns,
            leading,
        };
        assert_eq!(shape.a, stored(2, 4, 2));
        assert_eq!(shape.b, stored(3, 4, 3));
        assert_eq!(shape.c, stored(2, 3, 5));
        assert_eq!(shape.c.numbers(), 12);
        assert_eq!(stored(0, 3, 5).numbers(), 0);
        assert_eq!(stored(3, 0, 5).numbers(), 0);
    }

    #[test]
    fn the_first_wrong_argument_of_gemm_is_named() {
        type Change = fn(&mut GemmArguments);
        let wrong: [(Position, Change); 8] = [
            (1, |it| it.transposed = [None, None]),
            (2, |it| (it.transposed[1], it.sizes[0]) = (None, -1)),
            (3, |it| it.sizes = [-1, -1, -1]),
            (4, |it| it.sizes = [2, -1, -1]),
            (5, |it| (it.sizes, it.leading) = ([2, 3, -1], [0, 0, 0])),
            (8, |it| it.leading = [1, 2, 1]),
            (10, |it| it.leading = [2, 2, 1]),
            (13, |it| it.leading = [2, 3, c_int::MIN]),
        ];
        for (position, change) in wrong {
            let mut arguments = gemm();
            change(&mut arguments);
            assert_eq!(arguments.check(), Err(position));
        }
    }

    #[test]
    fn nothing_still_needs_a_leading_dimension_of_one() {
        let mut arguments = gemm();
        (arguments.sizes, arguments.leading) = ([0, 0, 0], [1, 1, 1]);
        assert!(arguments.check().is_ok());
        arguments.leading[2] = 0;
        assert_eq!(arguments.check(), Err(13));
    }

    #[test]
    fn the_first_wrong_argument_of_gemv_is_named() {
        type Change = fn(&mut GemvArguments);
        let right = GemvArguments {
            transposed: Some(true),
            sizes: [2, 3],
            leading: 2,
            increments: [1, -2],
        };
        let shape = right.check().unwrap();
        assert_eq!((shape.x.numbers(), shape.y.numbers()), (2, 5));
        let wrong: [(Position, Change); 6] = [
            (1, |it| (it.transposed, it.sizes) = (None, [-1, -1])),
            (2, |it| it.sizes = [-1, -1]),
            (3, |it| (it.sizes[1], it.leading) = (-1, 0)),
            (6, |it| (it.leading, it.increments) = (1, [0, 0])),
            (8, |it| it.increments = [0, 0]),
            (11, |it| it.increments[1] = 0),
        ];
        for (position, change) in wrong {
            let mut arguments = right;
            change(&mut arguments);
            assert_eq!(arguments.check(), Err(position));
        }
    }

    #[test]
    fn the_first_wrong_argument_of_ger_is_named() {
        type Change = fn(&mut GerArguments);
        let right = GerArguments {
            sizes: [2, 3],
            increments: [-3, 1],
            leading: 2,
        };
        let shape = right.check().unwrap();
        assert_eq!((shape.x.numbers(), shape.y.numbers()), (4, 3));
        let wrong: [(Position, Change); 5] = [
            (1, |it| it.sizes = [-1, -1]),
            (2, |it| (it.sizes[1], it.increments) = (-1, [0, 0])),
            (5, |it| (it.increments, it.leading) = ([0, 0], 0)),
            (7, |it| (it.increments[1], it.leading) = (0, 0)),
            (9, |it| it.leading = 1),
        ];
        for (position, change) in wrong {
            let mut arguments = right;
            change(&mut arguments);
            assert_eq!(arguments.check(), Err(position));
        }
    }
}
