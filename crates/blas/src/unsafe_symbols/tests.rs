//! The symbols as programs call them. Tests of XERBLA and of larger sizes are in tests/netlib.rs.

#![allow(clippy::float_cmp, reason = "small whole numbers are exact")]

use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};

use super::*;

const ROWS: c_int = 101;
const COLUMNS: c_int = 102;
const PLAIN: c_int = 111;
const TRANSPOSED: c_int = 112;

fn letter(letter: u8) -> c_char {
    c_char::from_ne_bytes([letter])
}

/// A 2 x 3 matrix by columns; the same numbers by rows are its transpose.
const A: [f64; 6] = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
const B: [f64; 6] = [1.0, 0.0, 1.0, 2.0, 1.0, 0.0];

fn c_gemm(layout: c_int, transposed: c_int, leading: [c_int; 3], beta: f64, c: &mut [f64]) {
    let [lda, ldb, ldc] = leading;
    let (a, b) = (A.as_ptr(), B.as_ptr());
    // SAFETY: the matrices have these sizes; where they do not, the call is refused.
    unsafe {
        cblas_dgemm(
            layout,
            transposed,
            transposed,
            2,
            2,
            3,
            1.0,
            a,
            lda,
            b,
            ldb,
            beta,
            c.as_mut_ptr(),
            ldc,
        );
    }
}

#[test]
fn by_rows_is_the_transposed_by_columns() {
    let mut c = [f64::NAN; 4];
    c_gemm(COLUMNS, PLAIN, [2, 3, 2], 0.0, &mut c);
    assert_eq!(c, [4.0, 10.0, 4.0, 13.0]);
    // A is 1 4 2; 5 3 6 by rows, and B is 1 0; 1 2; 1 0.
    c_gemm(ROWS, PLAIN, [3, 2, 2], 0.0, &mut c);
    assert_eq!(c, [7.0, 8.0, 14.0, 6.0]);
    // A is 1 4; 2 5; 3 6 by rows, transposed.
    c_gemm(ROWS, TRANSPOSED, [2, 3, 2], 1.0, &mut c);
    assert_eq!(c, [7.0 + 4.0, 8.0 + 4.0, 14.0 + 10.0, 6.0 + 13.0]);
}

#[test]
fn a_refused_call_changes_nothing() {
    let mut c = [7.0; 4];
    c_gemm(0, PLAIN, [2, 3, 2], 0.0, &mut c);
    c_gemm(COLUMNS, 0, [2, 3, 2], 0.0, &mut c);
    c_gemm(COLUMNS, PLAIN, [1, 3, 2], 0.0, &mut c);
    c_gemm(ROWS, PLAIN, [3, 1, 2], 0.0, &mut c);
    c_gemm(ROWS, PLAIN, [3, 2, -2], 0.0, &mut c);
    assert_eq!(c, [7.0; 4]);
}

#[test]
fn what_does_not_count_is_not_read() {
    let (no, one, size) = (letter(b'n'), 1, 3);
    let mut c = [f32::NAN; 9];
    let call = |k: c_int, alpha: f32, beta: f32, c: *mut f32| {
        let ldb = size.max(k);
        // SAFETY: A and B are not read, because alpha or k is 0; C has this size.
        unsafe {
            sgemm_(
                &raw const no,
                &raw const no,
                &raw const size,
                &raw const size,
                &raw const k,
                &raw const alpha,
                null(),
                &raw const size,
                null(),
                &raw const ldb,
                &raw const beta,
                c,
                &raw const size,
            );
        }
    };
    call(3, 0.0, 1.0, null_mut());
    call(0, 1.0, 0.0, c.as_mut_ptr());
    assert_eq!(c, [0.0; 9]);
    c.fill(2.0);
    call(1 << 30, 0.0, 0.5, c.as_mut_ptr());
    assert_eq!(c, [1.0; 9]);
    // SAFETY: there are no numbers to read.
    unsafe {
        cblas_sgemm(
            ROWS,
            PLAIN,
            PLAIN,
            0,
            0,
            0,
            1.0,
            null(),
            one,
            null(),
            one,
            0.0,
            null_mut(),
            one,
        );
        cblas_sgemv(
            COLUMNS,
            PLAIN,
            0,
            3,
            1.0,
            null(),
            1,
            null(),
            1,
            0.0,
            null_mut(),
            1,
        );
        cblas_sger(ROWS, 3, 3, 0.0, null(), 1, null(), 1, null_mut(), 3);
    }
}

/// Products below and above the size at which kernels are used.
#[test]
fn infinity_and_nan_are_multiplied_and_added_as_any_number() {
    for size in [3, 40] {
        let entries = usize::try_from(size * size).unwrap();
        let (mut a, b, mut c) = (vec![1.0; entries], vec![0.0; entries], vec![5.0; entries]);
        a[1] = f64::INFINITY;
        a[2] = f64::NAN;
        // SAFETY: all three have this size.
        unsafe {
            cblas_dgemm(
                COLUMNS,
                PLAIN,
                PLAIN,
                size,
                size,
                size,
                1.0,
                a.as_ptr(),
                size,
                b.as_ptr(),
                size,
                1.0,
                c.as_mut_ptr(),
                size,
            );
        }
        let rows = usize::try_from(size).unwrap();
        for (at, number) in c.iter().enumerate() {
            let undefined = [1, 2].contains(&(at % rows));
            assert_eq!(number.is_nan(), undefined, "{size}: {at}");
            assert!(undefined || *number == 5.0, "{size}: {at}");
        }
    }
}

#[test]
fn vectors_go_backward_and_leave_what_is_between() {
    let mut y = [1.0, -1.0, 2.0];
    let x = [1.0, 0.0, 0.0];
    let (no, m, n, one, two, back) = (letter(b'N'), 2, 3, 1.0, 2, -1);
    // SAFETY: A has 2 x 3 numbers, x 3 and y has 2 with a gap of one.
    unsafe {
        dgemv_(
            &raw const no,
            &raw const m,
            &raw const n,
            &raw const one,
            A.as_ptr(),
            &raw const m,
            x.as_ptr(),
            &raw const back,
            &raw const one,
            y.as_mut_ptr(),
            &raw const two,
        );
    }
    assert_eq!(y, [4.0, -1.0, 8.0]);
    // By rows A is 1 4; 2 5; 3 6.
    // SAFETY: as above.
    unsafe {
        cblas_dgemv(
            ROWS,
            PLAIN,
            3,
            2,
            1.0,
            A.as_ptr(),
            2,
            y.as_ptr(),
            2,
            0.0,
            y.as_mut_ptr(),
            0,
        );
    };
    assert_eq!(y, [4.0, -1.0, 8.0], "refused: INCY is 0");
    let mut a = [0.0; 6];
    // SAFETY: x has 3 numbers, y 2 with a gap of one, A 3 x 2 by rows.
    unsafe {
        cblas_dger(
            ROWS,
            3,
            2,
            2.0,
            x.as_ptr(),
            -1,
            y.as_ptr(),
            2,
            a.as_mut_ptr(),
            2,
        );
    };
    assert_eq!(a, [0.0, 0.0, 0.0, 0.0, 8.0, 16.0]);
}

#[test]
fn threads_call_at_once() {
    let multiply = |size: c_int| {
        let rows = usize::try_from(size).unwrap();
        let one = |at: usize| {
            if at.is_multiple_of(rows + 1) {
                1.0
            } else {
                0.0
            }
        };
        let a: Vec<f32> = (0..rows * rows).map(one).collect();
        let b: Vec<f32> = (0_i16..).map(f32::from).take(rows * rows).collect();
        for _ in 0..10 {
            let mut c = vec![f32::NAN; rows * rows];
            let (a, b, c_start) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
            // SAFETY: all three have this size.
            unsafe {
                cblas_sgemm(
                    ROWS, PLAIN, PLAIN, size, size, size, 1.0, a, size, b, size, 0.0, c_start, size,
                );
            }
            let wanted = (0_i16..).map(f32::from);
            assert!(
                c.iter().zip(wanted).all(|(found, wanted)| *found == wanted),
                "{size}"
            );
        }
    };
    std::thread::scope(|scope| {
        for size in [13, 40, 77, 100] {
            scope.spawn(move || multiply(size));
        }
    });
}
