//! GEMM on generated kernels, compared with the naive product: any shape, stride, factor and
//! parameters.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::many_single_char_names,
    reason = "tests; sums of small integers are exact; the names are those of BLAS"
)]

use proptest::prelude::*;
use vtax_tuner::{
    Element, Error, Gemm, Matrix, MatrixMut, Parameters, Precision, Problem, Processor, compare,
    verify_gemm,
};

/// Valid parameters from a small set: every instruction set of this processor, odd blocks.
fn parameters(precision: Precision) -> impl Strategy<Value = Parameters> {
    let vectors = Processor::this().vectors();
    let vector = proptest::sample::select(vectors);
    let block = (
        1_u32..=4,
        1_u32..=9,
        1_u32..=5,
        1_u32..=40,
        1_u32..=50,
        1_u32..=40,
    );
    let order = (
        any::<bool>(),
        any::<bool>(),
        0_u32..=9,
        0_u32..=9,
        0_u32..=2,
    );
    (vector, block, order).prop_filter_map("registers", move |(vector, block, order)| {
        let (rows, nu, ku, nb, mc, nc) = block;
        let (muladd, ffetch, lat, ifetch, nfetch) = order;
        let parameters = Parameters {
            vector,
            muladd,
            lat,
            nb,
            mu: rows * vector.lanes(precision),
            nu,
            ku,
            ffetch,
            ifetch,
            nfetch,
            mc,
            nc,
        };
        let valid = parameters.is_valid_for(&Processor::this(), precision);
        valid.is_ok().then_some(parameters)
    })
}

#[derive(Debug, Clone)]
struct Case {
    parameters: Parameters,
    shape: (usize, usize, usize),
    transposed: (bool, bool),
    factors: (f64, f64),
    extra: (usize, usize, usize),
    threads: usize,
    seed: u64,
}

fn case(precision: Precision, side: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let factor = || proptest::sample::select(vec![0.0, 1.0, -0.5, -1.0, 3.25]);
    (
        parameters(precision),
        (side.clone(), side.clone(), side),
        any::<(bool, bool)>(),
        (factor(), factor()),
        (0_usize..4, 0_usize..4, 0_usize..4),
        1_usize..=3,
        any::<u64>(),
    )
        .prop_map(
            |(parameters, shape, transposed, factors, extra, threads, seed)| Case {
                parameters,
                shape,
                transposed,
                factors,
                extra,
                threads,
                seed,
            },
        )
}

/// Numbers from -1 to 1 that single precision can hold.
fn random<T: Element>(seed: &mut u64, count: usize) -> Vec<T> {
    let mut next = || {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bits = u32::try_from(*seed >> 40).unwrap_or(0);
        T::nearest(f64::from(bits) / f64::from(1 << 23) - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

/// NaN between the columns: it must neither enter the result nor be overwritten.
fn poison<T: Element>(data: &mut [T], rows: usize, leading: usize) {
    for column in data.chunks_mut(leading) {
        let rows = rows.min(column.len());
        column[rows..].fill(T::nearest(f64::NAN));
    }
}

fn check<T: Element>(case: &Case) -> Result<(), TestCaseError> {
    let (m, n, k) = case.shape;
    let (transpose_a, transpose_b) = case.transposed;
    let (rows_a, columns_a) = if transpose_a { (k, m) } else { (m, k) };
    let (rows_b, columns_b) = if transpose_b { (n, k) } else { (k, n) };
    let leading = |rows: usize, extra: usize| rows.max(1) + extra;
    let (lda, ldb, ldc) = (
        leading(rows_a, case.extra.0),
        leading(rows_b, case.extra.1),
        leading(m, case.extra.2),
    );
    let mut seed = case.seed;
    let mut a: Vec<T> = random(&mut seed, lda * columns_a);
    let mut b: Vec<T> = random(&mut seed, ldb * columns_b);
    let mut before: Vec<T> = random(&mut seed, ldc * n);
    poison(&mut a, rows_a, lda);
    poison(&mut b, rows_b, ldb);
    poison(&mut before, m, ldc);
    let mut after = before.clone();
    let problem = Problem {
        transpose_a,
        transpose_b,
        m,
        n,
        k,
        alpha: T::nearest(case.factors.0),
        beta: T::nearest(case.factors.1),
        a: Matrix {
            data: &a,
            leading: lda,
        },
        b: Matrix {
            data: &b,
            leading: ldb,
        },
    };
    let gemm = Gemm::<T>::compile(&case.parameters, &Processor::this())
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
    let result = gemm
        .run(
            &problem,
            MatrixMut {
                data: &mut after,
                leading: ldc,
            },
            case.threads,
        )
        .and_then(|()| {
            let (old, new) = (
                Matrix {
                    data: &before,
                    leading: ldc,
                },
                Matrix {
                    data: &after,
                    leading: ldc,
                },
            );
            compare(&problem, &old, &new)
        });
    prop_assert_eq!(result, Ok(()));
    for column in after.chunks(ldc) {
        for padding in &column[m.min(column.len())..] {
            prop_assert!((*padding).into().is_nan(), "padding of C was written");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn double(case in case(Precision::Double, 0..70)) {
        check::<f64>(&case)?;
    }

    #[test]
    fn single(case in case(Precision::Single, 0..70)) {
        check::<f32>(&case)?;
    }
}

proptest! {
    // Cases this large take minutes to shrink.
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// Large enough for several threads.
    #[test]
    fn on_threads(case in case(Precision::Double, 128..180)) {
        check::<f64>(&case)?;
    }
}

/// The model's kernel of each instruction set.
fn kernels() -> Vec<Gemm<f64>> {
    let processor = Processor::this();
    let compile = |vector| {
        let parameters = Parameters::model_for(vector, &processor, Precision::Double);
        Gemm::compile(&parameters, &processor).unwrap()
    };
    processor.vectors().into_iter().map(compile).collect()
}

#[test]
fn the_models_kernels_pass_their_verification() {
    for gemm in kernels() {
        assert_eq!(verify_gemm(&gemm), Ok(()), "{:?}", gemm.parameters());
    }
    let processor = Processor::this();
    for vector in processor.vectors() {
        let parameters = Parameters::model_for(vector, &processor, Precision::Single);
        let gemm = Gemm::<f32>::compile(&parameters, &processor).unwrap();
        assert_eq!(verify_gemm(&gemm), Ok(()), "{parameters:?}");
    }
}

/// Run with square matrices of 9 columns.
fn nine(gemm: &Gemm<f64>, a: &[f64], b: &[f64], c: &mut [f64], alpha: f64, beta: f64) {
    let problem = Problem {
        transpose_a: false,
        transpose_b: false,
        m: 9,
        n: 9,
        k: 9,
        alpha,
        beta,
        a: Matrix {
            data: a,
            leading: 9,
        },
        b: Matrix {
            data: b,
            leading: 9,
        },
    };
    gemm.run(
        &problem,
        MatrixMut {
            data: c,
            leading: 9,
        },
        1,
    )
    .unwrap();
}

#[test]
fn nan_and_infinity_go_where_they_belong_and_nowhere_else() {
    for gemm in kernels() {
        let ones = vec![1.0; 81];
        let mut c = vec![f64::NAN; 81];
        nine(&gemm, &ones, &ones, &mut c, 1.0, 0.0);
        assert!(c.iter().all(|c| *c == 9.0), "NaN in C with beta 0");
        c.fill(f64::NAN);
        nine(
            &gemm,
            &[f64::NAN; 81],
            &[f64::INFINITY; 81],
            &mut c,
            0.0,
            0.0,
        );
        assert!(c.iter().all(|c| *c == 0.0), "A and B with alpha 0");
        nine(&gemm, &[], &[], &mut c, 0.0, 1.0);
        for (value, is) in [
            (f64::NAN, f64::is_nan as fn(f64) -> bool),
            (f64::INFINITY, |c| c == f64::INFINITY),
        ] {
            let mut a = ones.clone();
            a[9 * 4 + 3] = value;
            nine(&gemm, &a, &ones, &mut c, 1.0, 0.0);
            for (index, c) in c.iter().enumerate() {
                let row = index % 9;
                assert_eq!(
                    is(*c),
                    row == 3,
                    "A has {value} in row 3, C {c} in row {row}"
                );
            }
            nine(&gemm, &ones, &a, &mut c, 1.0, 0.0);
            for (index, c) in c.iter().enumerate() {
                let column = index / 9;
                assert_eq!(
                    is(*c),
                    column == 4,
                    "B has {value} in column 4, C {c} in {column}"
                );
            }
            c.fill(1.0);
            c[80] = value;
            nine(&gemm, &ones, &ones, &mut c, 1.0, 1.0);
            assert!(is(c[80]) && c[..80].iter().all(|c| *c == 10.0));
        }
    }
}

#[test]
fn wrong_arguments_are_named_with_their_number_and_nothing_is_written() {
    let processor = Processor::this();
    let parameters = Parameters::model(&processor, Precision::Double);
    let gemm = Gemm::<f64>::compile(&parameters, &processor).unwrap();
    let numbers = vec![1.0; 100];
    for (number, lengths, leading) in [
        (8, (100, 100, 100), (4, 7, 5)),
        (10, (100, 100, 100), (5, 6, 5)),
        (13, (100, 100, 100), (5, 7, 4)),
        (13, (0, 0, 0), (5, 7, 0)),
        (7, (34, 100, 100), (5, 7, 5)),
        (9, (100, 41, 100), (5, 7, 5)),
        (12, (100, 100, 29), (5, 7, 5)),
        (12, (100, 100, 100), (5, 7, usize::MAX)),
    ] {
        let problem = Problem {
            transpose_a: false,
            transpose_b: false,
            m: 5,
            n: 6,
            k: 7,
            alpha: 1.0,
            beta: 0.0,
            a: Matrix {
                data: &numbers[..lengths.0],
                leading: leading.0,
            },
            b: Matrix {
                data: &numbers[..lengths.1],
                leading: leading.1,
            },
        };
        let mut c = vec![2.0; lengths.2];
        let c_mut = MatrixMut {
            data: &mut c,
            leading: leading.2,
        };
        match gemm.run(&problem, c_mut, 1) {
            Err(Error::Argument { number: found, .. }) => assert_eq!(found, number),
            other => panic!("{number}: {other:?}"),
        }
        assert!(c.iter().all(|c| *c == 2.0));
    }
}

/// A single column may have any leading dimension.
#[test]
fn a_leading_dimension_may_be_as_large_as_integers_go() {
    let processor = Processor::this();
    for vector in processor.vectors() {
        let mut parameters = Parameters::model_for(vector, &processor, Precision::Double);
        parameters.nu = 1;
        let gemm = Gemm::<f64>::compile(&parameters, &processor).unwrap();
        let rows = parameters.mu as usize;
        let (ones, mut c) = (vec![1.0; rows], vec![2.0; rows]);
        let (data, leading) = (&ones[..], usize::MAX);
        let problem = Problem {
            transpose_a: false,
            transpose_b: false,
            m: rows,
            n: 1,
            k: 1,
            alpha: 1.0,
            beta: 1.0,
            a: Matrix { data, leading },
            b: Matrix { data, leading },
        };
        let data = &mut c;
        gemm.run(&problem, MatrixMut { data, leading }, 1).unwrap();
        assert_eq!(c, vec![3.0; rows]);
    }
}

#[test]
fn a_wrong_product_is_found() {
    let a: Vec<f64> = random(&mut 7, 30 * 20);
    let problem = Problem {
        transpose_a: false,
        transpose_b: true,
        m: 20,
        n: 20,
        k: 30,
        alpha: 1.0,
        beta: 0.0,
        a: Matrix {
            data: &a,
            leading: 20,
        },
        b: Matrix {
            data: &a,
            leading: 20,
        },
    };
    let mut c = vec![0.0; 400];
    kernels()[0]
        .run(
            &problem,
            MatrixMut {
                data: &mut c,
                leading: 20,
            },
            1,
        )
        .unwrap();
    let zero = vec![0.0; 400];
    let old = Matrix {
        data: &zero[..],
        leading: 20,
    };
    assert_eq!(
        compare(
            &problem,
            &old,
            &Matrix {
                data: &c,
                leading: 20
            }
        ),
        Ok(())
    );
    c[20 * 3 + 11] += 1e-10;
    let error = compare(
        &problem,
        &old,
        &Matrix {
            data: &c,
            leading: 20,
        },
    )
    .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Wrong {
                row: 11,
                column: 3,
                ..
            }
        ),
        "{error}"
    );
}
