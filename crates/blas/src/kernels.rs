//! The kernels, which are generated at the first call that needs them, and kept.

use std::fmt::Debug;
use std::process::abort;
use std::sync::OnceLock;

use vtax_tuner::tuned::Routines;
use vtax_tuner::{
    Element, Error, Gemm, Gemv, GemvProblem, Ger, GerProblem, Level2, MatrixMut, Parameters,
    Problem, Processor, StridedMut, Vector,
};

use crate::plain;
use crate::settings::{Settings, once, say};
use crate::unsafe_small;

/// Up to this many multiplications, a product is computed without a kernel: packing would take
/// longer.
const SMALL: usize = 12 * 12 * 12;

/// The routines' kernels in one precision.
#[derive(Debug)]
pub struct Kernels<T: Element> {
    gemm: OnceLock<Gemm<T>>,
    gemv_n: OnceLock<Gemv<T>>,
    gemv_t: OnceLock<Gemv<T>>,
    ger: OnceLock<Ger<T>>,
}

impl<T: Element> Kernels<T> {
    const fn new() -> Self {
        Self {
            gemm: OnceLock::new(),
            gemv_n: OnceLock::new(),
            gemv_t: OnceLock::new(),
            ger: OnceLock::new(),
        }
    }
}

/// A type of numbers whose routines this library has.
pub trait Number: Element {
    /// The first letter of its routines' names.
    const LETTER: char;

    fn kernels() -> &'static Kernels<Self>;

    /// Compute a small product without kernels; false: it is not small, or must be done otherwise.
    fn small(problem: &Problem<'_, Self>, c: &mut MatrixMut<'_, Self>) -> bool;
}

impl Number for f64 {
    const LETTER: char = 'd';

    fn kernels() -> &'static Kernels<Self> {
        static KERNELS: Kernels<f64> = Kernels::new();
        &KERNELS
    }

    fn small(problem: &Problem<'_, Self>, c: &mut MatrixMut<'_, Self>) -> bool {
        unsafe_small::gemm::<Self, 8, 4, 2>(problem, c)
    }
}

impl Number for f32 {
    const LETTER: char = 's';

    fn kernels() -> &'static Kernels<Self> {
        static KERNELS: Kernels<f32> = Kernels::new();
        &KERNELS
    }

    fn small(problem: &Problem<'_, Self>, c: &mut MatrixMut<'_, Self>) -> bool {
        unsafe_small::gemm::<Self, 16, 8, 4>(problem, c)
    }
}

/// C = alpha op(A) op(B) + beta C. The arguments have been checked.
pub fn gemm<T: Number>(problem: &Problem<'_, T>, mut c: MatrixMut<'_, T>) {
    if T::small(problem, &mut c) {
        return;
    }
    let multiplications = problem
        .m
        .saturating_mul(problem.n)
        .saturating_mul(problem.k);
    if multiplications > SMALL {
        let threads = Settings::get().threads;
        let kernel = once(&T::kernels().gemm, new_gemm);
        let same = MatrixMut {
            data: &mut *c.data,
            leading: c.leading,
        };
        if kernel.run(problem, same, threads).is_ok() {
            return;
        }
    }
    // A small product; or there was no memory for panels, and nothing has been written yet.
    plain::gemm(problem, c);
}

/// y = alpha op(A) x + beta y. The arguments have been checked.
pub fn gemv<T: Number>(problem: &GemvProblem<'_, T>, y: StridedMut<'_, T>) {
    let kernels = T::kernels();
    let kernel = if problem.transpose {
        let tuned = |it: &Routines| it.gemv_t;
        once(&kernels.gemv_t, || {
            level2::<T, _>("gemv_t", tuned, Gemv::compile)
        })
    } else {
        let tuned = |it: &Routines| it.gemv_n;
        once(&kernels.gemv_n, || {
            level2::<T, _>("gemv_n", tuned, Gemv::compile)
        })
    };
    done(kernel.run(problem, y));
}

/// A = A + alpha x y transposed. The arguments have been checked.
pub fn ger<T: Number>(problem: &GerProblem<'_, T>, a: MatrixMut<'_, T>) {
    let tuned = |it: &Routines| it.ger;
    let kernel = once(&T::kernels().ger, || {
        level2::<T, _>("ger", tuned, Ger::compile)
    });
    done(kernel.run(problem, a));
}

/// These routines need no memory that may be missing, and their arguments are right.
fn done(result: Result<(), Error>) {
    if let Err(error) = result {
        say(&error.to_string());
        abort();
    }
}

fn new_gemm<T: Number>() -> Gemm<T> {
    let processor = &Settings::get().processor;
    let tuned = |it: &Routines| it.gemm;
    let model = |vector| Parameters::model_for(vector, processor, T::PRECISION);
    generated::<T, _, _>("gemm", tuned, model, Gemm::compile)
}

fn level2<T: Number, K>(
    routine: &str,
    tuned: impl Fn(&Routines) -> Option<Level2>,
    compile: impl Fn(&Level2, &Processor) -> Result<K, Error>,
) -> K {
    let model = Level2::model(&Settings::get().processor);
    generated::<T, _, _>(routine, tuned, |vector| Level2 { vector, ..model }, compile)
}

/// A routine generated from the tuned parameters; without them, from the model's parameters for the
/// widest instruction set; and where pages cannot be made executable, from the parameters for
/// portable code.
fn generated<T: Number, P: Debug, K>(
    routine: &str,
    tuned: impl Fn(&Routines) -> Option<P>,
    model: impl Fn(Vector) -> P,
    compile: impl Fn(&P, &Processor) -> Result<K, Error>,
) -> K {
    let settings = Settings::get();
    let routine = format!("{}{routine}", T::LETTER);
    let routines = settings.tuned.as_ref().map(|it| it.of(T::PRECISION));
    let (source, parameters) = match routines.and_then(tuned) {
        Some(tuned) => ("tuned", tuned),
        None => ("model", model(settings.widest())),
    };
    let refused = match compile(&parameters, &settings.processor) {
        Ok(kernel) => {
            settings.say_used(&routine, &format!("{source} {parameters:?}"));
            return kernel;
        }
        Err(error) => error,
    };
    say(&format!("{routine}: {refused}; portable code is used"));
    compile(&model(Vector::Portable), &settings.processor).unwrap_or_else(|error| {
        // Portable code needs nothing generated and no memory.
        say(&format!("{routine}: {error}"));
        abort()
    })
}
