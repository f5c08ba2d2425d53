//! Speed of GEMM: `gemm_speed SIZE THREADS TIMES [NAME=VALUE]...`, where a name is a parameter's as
//! in files, `VECTOR`, `single=1`, or `trans=NT`; what is not given is the model's.

use vtax_tune::{Element, Gemm, GemmTimer, Parameters, Processor, Vector, verify_gemm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "single=1") {
        run::<f32>(&arguments)
    } else {
        run::<f64>(&arguments)
    }
}

fn run<T: Element>(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let number = |index: usize, default: usize| -> Result<usize, std::num::ParseIntError> {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse())
    };
    let (size, threads, times) = (number(0, 1000)?, number(1, 1)?, number(2, 10)?);
    let processor = Processor::this();
    let given = |name: &str| {
        let value = |text: &String| {
            text.strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        };
        arguments.iter().find_map(value)
    };
    let vector = match given("VECTOR").as_deref() {
        Some("portable") => Vector::Portable,
        Some("scalar") => Vector::Scalar,
        Some("sse2") => Vector::Sse2,
        Some("avx2") => Vector::Avx2,
        Some("avx512") => Vector::Avx512,
        _ => processor
            .vectors()
            .last()
            .copied()
            .unwrap_or(Vector::Portable),
    };
    let mut parameters = Parameters::model_for(vector, &processor, T::PRECISION);
    let set = |name, field: &mut u32| -> Result<(), std::num::ParseIntError> {
        given(name).map_or(Ok(()), |text| text.parse().map(|value| *field = value))
    };
    set("LAT", &mut parameters.lat)?;
    set("NB", &mut parameters.nb)?;
    set("MU", &mut parameters.mu)?;
    set("NU", &mut parameters.nu)?;
    set("KU", &mut parameters.ku)?;
    set("IFTCH", &mut parameters.ifetch)?;
    set("NFTCH", &mut parameters.nfetch)?;
    set("MC", &mut parameters.mc)?;
    set("NC", &mut parameters.nc)?;
    parameters.muladd = given("MULADD").map_or(parameters.muladd, |text| text == "1");
    parameters.ffetch = given("FFTCH").map_or(parameters.ffetch, |text| text == "1");
    let trans = given("trans").unwrap_or_default();
    let transposed = (trans.starts_with('T'), trans.ends_with('T'));
    let gemm = Gemm::<T>::compile(&parameters, &processor)?;
    verify_gemm(&gemm)?;
    let mut matrices = GemmTimer::new(size);
    matrices.time(&gemm, transposed, threads)?;
    let mut gflops = Vec::new();
    for _ in 0..times.max(1) {
        gflops.push(matrices.time(&gemm, transposed, threads)?.gflops);
    }
    gflops.sort_by(f64::total_cmp);
    let (best, median) = (gflops[gflops.len() - 1], gflops[gflops.len() / 2]);
    println!("best {best:.2} median {median:.2} GFLOP/s  {parameters:?}");
    Ok(())
}
