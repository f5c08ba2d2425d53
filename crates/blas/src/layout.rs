//! CBLAS: a matrix stored by rows is its transpose stored by columns, so arguments are exchanged,
//! and positions of wrong arguments are those in C.

use std::ffi::c_int;

use crate::arguments::{GemmArguments, GemvArguments, GerArguments, Position};

/// How the matrices are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `CblasRowMajor`.
    Rows,
    /// `CblasColMajor`.
    Columns,
}

/// Read a `CBLAS_LAYOUT`.
pub fn layout(value: c_int) -> Result<Layout, Position> {
    match value {
        101 => Ok(Layout::Rows),
        102 => Ok(Layout::Columns),
        _ => Err(1),
    }
}

/// Read a `CBLAS_TRANSPOSE`; for real numbers `CblasConjTrans` is the same as `CblasTrans`.
pub fn transposed(value: c_int, position: Position) -> Result<bool, Position> {
    match value {
        111 => Ok(false),
        112 | 113 => Ok(true),
        _ => Err(position),
    }
}

/// C' = op(B)' op(A)': the arguments for the same memory stored by columns.
pub fn exchange_gemm(given: GemmArguments) -> GemmArguments {
    let exchanged = |[one, other, third]: [c_int; 3]| [other, one, third];
    let [a, b] = given.transposed;
    GemmArguments {
        transposed: [b, a],
        sizes: exchanged(given.sizes),
        leading: exchanged(given.leading),
    }
}

/// y = op(A')' x: the arguments for the same memory stored by columns.
pub fn exchange_gemv(given: GemvArguments) -> GemvArguments {
    let [m, n] = given.sizes;
    GemvArguments {
        transposed: given.transposed.map(|it| !it),
        sizes: [n, m],
        ..given
    }
}

/// A' = A' + alpha y x': the arguments for the same memory stored by columns.
pub fn exchange_ger(given: GerArguments) -> GerArguments {
    let exchanged = |[one, other]: [c_int; 2]| [other, one];
    GerArguments {
        sizes: exchanged(given.sizes),
        increments: exchanged(given.increments),
        ..given
    }
}

/// Pairs of positions in C that change places where arguments are exchanged: M and N, LDA and LDB.
/// Netlib's `cblas_xerbla` has the same tables.
pub const EXCHANGED_GEMM: &[[Position; 2]] = &[[4, 5], [9, 11]];
/// The pair of M and N.
pub const EXCHANGED_GEMV: &[[Position; 2]] = &[[3, 4]];
/// The pairs of M and N, and of INCX and INCY.
pub const EXCHANGED_GER: &[[Position; 2]] = &[[2, 3], [6, 8]];

/// The position in C of an argument with this position in Fortran.
pub fn position(fortran: Position, layout: Layout, exchanged: &[[Position; 2]]) -> Position {
    let position = fortran + 1;
    match layout {
        Layout::Columns => position,
        Layout::Rows => exchange(position, exchanged),
    }
}

/// The position that changes places with this one.
pub fn exchange(position: Position, exchanged: &[[Position; 2]]) -> Position {
    let of = |[one, other]: &[Position; 2]| match position {
        it if it == *one => Some(*other),
        it if it == *other => Some(*one),
        _ => None,
    };
    exchanged.iter().find_map(of).unwrap_or(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_value_of_the_enumerations_is_refused() {
        assert_eq!(layout(101), Ok(Layout::Rows));
        assert_eq!(layout(102), Ok(Layout::Columns));
        assert_eq!(layout(0), Err(1));
        let found = [110, 111, 112, 113, 114].map(|value| transposed(value, 3));
        assert_eq!(found, [Err(3), Ok(false), Ok(true), Ok(true), Err(3)]);
    }

    /// The position in `cblas_dgemm` for a product by rows with one wrong argument.
    #[test]
    fn positions_are_those_of_the_c_function() {
        let right = GemmArguments {
            transposed: [Some(false), Some(false)],
            sizes: [2, 3, 4],
            leading: [4, 3, 3],
        };
        assert!(exchange_gemm(right).check().is_ok());
        for (index, wanted) in [(0, 4), (1, 5), (2, 6)] {
            let mut wrong = right;
            wrong.sizes[index] = -1;
            let found = exchange_gemm(wrong).check().unwrap_err();
            assert_eq!(position(found, Layout::Rows, EXCHANGED_GEMM), wanted);
            let found = wrong.check().unwrap_err();
            assert_eq!(position(found, Layout::Columns, EXCHANGED_GEMM), wanted);
        }
        for (index, wanted) in [(0, 9), (1, 11), (2, 14)] {
            let mut wrong = right;
            wrong.leading[index] = 2;
            let found = exchange_gemm(wrong).check().unwrap_err();
            assert_eq!(position(found, Layout::Rows, EXCHANGED_GEMM), wanted);
        }
    }

    #[test]
    fn positions_of_level_2_are_those_of_the_c_functions() {
        let gemv = GemvArguments {
            transposed: Some(false),
            sizes: [2, 3],
            leading: 3,
            increments: [1, 1],
        };
        let found = |wrong: GemvArguments| {
            let position_in_fortran = exchange_gemv(wrong).check().unwrap_err();
            position(position_in_fortran, Layout::Rows, EXCHANGED_GEMV)
        };
        let sizes = [[-1, 3], [2, -1]].map(|sizes| found(GemvArguments { sizes, ..gemv }));
        assert_eq!(sizes, [3, 4]);
        assert_eq!(found(GemvArguments { leading: 2, ..gemv }), 7);
        let increments = [[0, 1], [1, 0]];
        let increments = increments.map(|increments| found(GemvArguments { increments, ..gemv }));
        assert_eq!(increments, [9, 12]);

        let ger = GerArguments {
            sizes: [2, 3],
            increments: [1, 1],
            leading: 3,
        };
        let found = |wrong: GerArguments| {
            let position_in_fortran = exchange_ger(wrong).check().unwrap_err();
            position(position_in_fortran, Layout::Rows, EXCHANGED_GER)
        };
        let sizes = [[-1, 3], [2, -1]].map(|sizes| found(GerArguments { sizes, ..ger }));
        assert_eq!(sizes, [2, 3]);
        let increments = [[0, 1], [1, 0]];
        let increments = increments.map(|increments| found(GerArguments { increments, ..ger }));
        assert_eq!(increments, [6, 8]);
        assert_eq!(found(GerArguments { leading: 2, ..ger }), 10);
    }
}
