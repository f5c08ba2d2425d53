//! GEMV and GER, compared with the naive product: any shape, increment, factor and parameters.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::many_single_char_names,
    clippy::similar_names,
    reason = "tests; the names are those of BLAS"
)]

use proptest::prelude::*;
use vtax_tuner::{
    Element, Error, Gemv, GemvProblem, Ger, GerProblem, Level2, Matrix, MatrixMut, Processor,
    Strided, StridedMut, compare_gemv, compare_ger, verify_gemv, verify_ger,
};

fn parameters() -> impl Strategy<Value = Level2> {
    let vector = proptest::sample::select(Processor::this().vectors());
    (vector, 1_u32..=6, 1_u32..=12).prop_filter_map("registers", |(vector, x_unroll, y_unroll)| {
        let parameters = Level2 {
            vector,
            x_unroll,
            y_unroll,
        };
        parameters
            .is_valid_for(&Processor::this())
            .is_ok()
            .then_some(parameters)
    })
}

#[derive(Debug, Clone)]
struct Case {
    parameters: Level2,
    transpose: bool,
    shape: (usize, usize),
    factors: (f64, f64),
    increments: (isize, isize),
    extra: usize,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let factor = || proptest::sample::select(vec![0.0, 1.0, -0.5, 3.25]);
    let increment = || proptest::sample::select(vec![1_isize, 1, 2, -1, -3]);
    (
        parameters(),
        any::<bool>(),
        (0_usize..120, 0_usize..40),
        (factor(), factor()),
        (increment(), increment()),
        0_usize..4,
        any::<u64>(),
    )
        .prop_map(
            |(parameters, transpose, shape, factors, increments, extra, seed)| Case {
                parameters,
                transpose,
                shape,
                factors,
                increments,
                extra,
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

/// NaN wherever BLAS must not read or write: in `unused` places.
fn poison<T: Element>(data: &mut [T], unused: impl Fn(usize) -> bool) {
    for (index, number) in data.iter_mut().enumerate() {
        if unused(index) {
            *number = T::nearest(f64::NAN);
        }
    }
}

fn still_nan<T: Element>(data: &[T], unused: impl Fn(usize) -> bool) -> bool {
    data.iter()
        .enumerate()
        .all(|(index, number)| !unused(index) || (*number).into().is_nan())
}

fn between(increment: isize) -> impl Fn(usize) -> bool {
    move |index| index % increment.unsigned_abs() != 0
}

fn gemv<T: Element>(case: &Case) -> Result<(), TestCaseError> {
    let (m, n) = case.shape;
    let (inputs, outputs) = if case.transpose { (m, n) } else { (n, m) };
    let (incx, incy) = case.increments;
    let leading = m.max(1) + case.extra;
    let mut seed = case.seed;
    let mut a: Vec<T> = random(&mut seed, leading * n);
    let mut x: Vec<T> = random(&mut seed, inputs * incx.unsigned_abs());
    let mut before: Vec<T> = random(&mut seed, outputs * incy.unsigned_abs());
    poison(&mut a, |index| index % leading >= m);
    poison(&mut x, between(incx));
    poison(&mut before, between(incy));
    let mut after = before.clone();
    let problem = GemvProblem {
        transpose: case.transpose,
        m,
        n,
        alpha: T::nearest(case.factors.0),
        a: Matrix { data: &a, leading },
        x: Strided {
            data: &x,
            increment: incx,
        },
        beta: T::nearest(case.factors.1),
    };
    let gemv = Gemv::compile(&case.parameters, &Processor::this()).unwrap();
    let result = gemv.run(
        &problem,
        StridedMut {
            data: &mut after,
            increment: incy,
        },
    );
    prop_assert_eq!(result, Ok(()));
    prop_assert!(still_nan(&after, between(incy)));
    if m == 0 || n == 0 {
        return Ok(());
    }
    let (old, new) = (
        Strided {
            data: &before,
            increment: incy,
        },
        Strided {
            data: &after,
            increment: incy,
        },
    );
    prop_assert_eq!(compare_gemv(&problem, &old, &new), Ok(()));
    Ok(())
}

fn ger<T: Element>(case: &Case) -> Result<(), TestCaseError> {
    let (m, n) = case.shape;
    let (incx, incy) = case.increments;
    let leading = m.max(1) + case.extra;
    let mut seed = case.seed;
    let mut x: Vec<T> = random(&mut seed, m * incx.unsigned_abs());
    let mut y: Vec<T> = random(&mut seed, n * incy.unsigned_abs());
    let mut before: Vec<T> = random(&mut seed, leading * n);
    poison(&mut x, between(incx));
    poison(&mut y, between(incy));
    poison(&mut before, |index| index % leading >= m);
    let mut after = before.clone();
    let problem = GerProblem {
        m,
        n,
        alpha: T::nearest(case.factors.0),
        x: Strided {
            data: &x,
            increment: incx,
        },
        y: Strided {
            data: &y,
            increment: incy,
        },
    };
    let ger = Ger::compile(&case.parameters, &Processor::this()).unwrap();
    prop_assert_eq!(
        ger.run(
            &problem,
            MatrixMut {
                data: &mut after,
                leading
            }
        ),
        Ok(())
    );
    prop_assert!(still_nan(&after, |index| index % leading >= m));
    let (old, new) = (
        Matrix {
            data: &before,
            leading,
        },
        Matrix {
            data: &after,
            leading,
        },
    );
    prop_assert_eq!(compare_ger(&problem, &old, &new), Ok(()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn gemv_in_double_and_single(case in case()) {
        gemv::<f64>(&case)?;
        gemv::<f32>(&case)?;
    }

    #[test]
    fn ger_in_double_and_single(case in case()) {
        ger::<f64>(&case)?;
        ger::<f32>(&case)?;
    }
}

#[test]
fn kernels_pass_their_verification() {
    let processor = Processor::this();
    for vector in processor.vectors() {
        for (x_unroll, y_unroll) in [(1, 1), (2, 4), (1, 12)] {
            let parameters = Level2 {
                vector,
                x_unroll,
                y_unroll,
            };
            let gemv = Gemv::<f64>::compile(&parameters, &processor).unwrap();
            assert_eq!(verify_gemv(&gemv), Ok(()), "{parameters:?}");
            let ger = Ger::<f32>::compile(&parameters, &processor).unwrap();
            assert_eq!(verify_ger(&ger), Ok(()), "{parameters:?}");
        }
    }
}

#[test]
fn wrong_arguments_have_their_numbers_in_blas() {
    let processor = Processor::this();
    let parameters = Level2 {
        vector: vtax_tuner::Vector::Portable,
        x_unroll: 1,
        y_unroll: 1,
    };
    let gemv = Gemv::<f64>::compile(&parameters, &processor).unwrap();
    let ger = Ger::<f64>::compile(&parameters, &processor).unwrap();
    let numbers = vec![1.0; 100];
    let number = |result: Result<(), Error>| match result {
        Err(Error::Argument { number, .. }) => number,
        other => panic!("{other:?}"),
    };
    let cases = [
        // LDA, INCX, INCY, and the lengths of A, x and y; the numbers of the arguments in DGEMV and
        // DGER.
        ((4, 1, 1), (100, 100, 100), (6, 9)),
        ((5, 0, 1), (100, 100, 100), (8, 5)),
        ((5, 1, 0), (100, 100, 100), (11, 7)),
        ((5, 1, 1), (29, 100, 100), (5, 8)),
        ((5, -2, 1), (100, 8, 100), (7, 4)),
        ((5, 1, 3), (100, 100, 12), (10, 6)),
    ];
    for ((leading, incx, incy), (of_a, of_x, of_y), (in_gemv, in_ger)) in cases {
        let x = Strided {
            data: &numbers[..of_x],
            increment: incx,
        };
        let a = Matrix {
            data: &numbers[..of_a],
            leading,
        };
        let problem = GemvProblem {
            transpose: false,
            m: 5,
            n: 6,
            alpha: 1.0,
            a,
            x,
            beta: 0.0,
        };
        let mut y = vec![2.0; of_y];
        let result = gemv.run(
            &problem,
            StridedMut {
                data: &mut y,
                increment: incy,
            },
        );
        assert_eq!(number(result), in_gemv);
        let y = Strided {
            data: &numbers[..of_y],
            increment: incy,
        };
        let mut a = vec![2.0; of_a];
        let problem = GerProblem {
            m: 5,
            n: 6,
            alpha: 1.0,
            x,
            y,
        };
        let result = ger.run(
            &problem,
            MatrixMut {
                data: &mut a,
                leading,
            },
        );
        assert_eq!(number(result), in_ger);
        assert_eq!(a, vec![2.0; of_a]);
    }
}

#[test]
fn nan_survives_only_where_it_should() {
    let processor = Processor::this();
    for vector in processor.vectors() {
        let parameters = Level2 {
            vector,
            x_unroll: 2,
            y_unroll: 3,
        };
        let gemv = Gemv::<f64>::compile(&parameters, &processor).unwrap();
        for transpose in [false, true] {
            let run = |alpha: f64, a: f64, x: f64| {
                let (a, x) = (vec![a; 400], vec![x; 20]);
                let mut y = vec![f64::NAN; 20];
                let problem = GemvProblem {
                    transpose,
                    m: 20,
                    n: 20,
                    alpha,
                    a: Matrix {
                        data: &a,
                        leading: 20,
                    },
                    x: Strided {
                        data: &x,
                        increment: 1,
                    },
                    beta: 0.0,
                };
                gemv.run(
                    &problem,
                    StridedMut {
                        data: &mut y,
                        increment: 1,
                    },
                )
                .unwrap();
                y
            };
            assert_eq!(run(1.0, 1.0, 1.0), vec![20.0; 20]);
            assert_eq!(run(0.0, f64::NAN, f64::INFINITY), vec![0.0; 20]);
            assert_eq!(run(1.0, f64::INFINITY, 1.0), vec![f64::INFINITY; 20]);
            assert!(run(1.0, 1.0, f64::NAN).iter().all(|y| y.is_nan()));
        }
    }
}
