//! Speed of GEMV and GER in double precision: `level2_speed SIZE TIMES [XUNROLL YUNROLL]`.

use vtax_tune::{Gemv, Ger, Level2, Level2Timer, Processor, verify_gemv, verify_ger};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u32| -> Result<u32, std::num::ParseIntError> {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse())
    };
    let (size, times) = (number(0, 1000)? as usize, number(1, 20)?);
    let processor = Processor::this();
    let model = Level2::model(&processor);
    let parameters = Level2 {
        x_unroll: number(2, model.x_unroll)?,
        y_unroll: number(3, model.y_unroll)?,
        ..model
    };
    let gemv = Gemv::<f64>::compile(&parameters, &processor)?;
    let ger = Ger::<f64>::compile(&parameters, &processor)?;
    verify_gemv(&gemv)?;
    verify_ger(&ger)?;
    let mut operands = Level2Timer::new(size);
    let (mut plain, mut transposed, mut rank1) = (0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..times {
        plain = plain.max(operands.gemv(&gemv, false)?.gflops);
        transposed = transposed.max(operands.gemv(&gemv, true)?.gflops);
        rank1 = rank1.max(operands.ger(&ger)?.gflops);
    }
    println!("gemv_n {plain:.2} gemv_t {transposed:.2} ger {rank1:.2} GFLOP/s  {parameters:?}");
    Ok(())
}
