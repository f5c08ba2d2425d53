//! The start of the search: parameters from the sizes of the caches alone.
//!
//! Low, Igual, Smith and Quintana-Ortí, Analytical Modeling Is Enough for High-Performance BLIS
//! (ACM TOMS 43, 2016): nb is chosen so that a panel of A, one of B and the lines of C share the
//! sets of L1; mc so that the block of A shares the sets of L2 with a panel of B; nc likewise for
//! L3.

use crate::parameters::{Level2, Parameters};
use crate::processor::Processor;
use crate::vector::{Precision, Vector};

/// Assumed where nothing is known: the smallest L1 and L2 of recent processors.
const L1: (u64, u32) = (32 << 10, 8);
const L2: (u64, u32) = (256 << 10, 8);
/// An L3 is shared, also with other virtual machines: this is what one core may expect.
const L3_BYTES: u64 = 4 << 20;

impl Parameters {
    /// Good parameters for this processor, found without any measurement.
    pub fn model(processor: &Processor, precision: Precision) -> Self {
        let vector = processor
            .vectors()
            .last()
            .copied()
            .unwrap_or(Vector::Portable);
        Self::model_for(vector, processor, precision)
    }

    /// Good parameters for kernels of one instruction set.
    pub fn model_for(vector: Vector, processor: &Processor, precision: Precision) -> Self {
        let muladd = processor.fuses(vector);
        let lanes = vector.lanes(precision);
        let (rows, nu) = register_block(vector, muladd);
        let mu = rows * lanes;
        let number = u64::from(precision.bytes());
        let l1 = (
            processor.l1_bytes.unwrap_or(L1.0),
            processor.l1_ways.unwrap_or(L1.1),
        );
        let l2 = (
            processor.l2_bytes.unwrap_or(L2.0),
            processor.l2_ways.unwrap_or(L2.1),
        );
        let copies = if vector == Vector::Sse2 {
            u64::from(lanes)
        } else {
            1
        };
        let (a, b) = (u64::from(mu) * number, u64::from(nu) * number * copies);
        let nb = depth(l1, a, b).clamp(64, 512);
        let rows = block(l2, u64::from(nb) * b) / (u64::from(nb) * number);
        let columns = processor
            .l3_bytes
            .map_or(L3_BYTES, |bytes| bytes.min(L3_BYTES))
            / (u64::from(nb) * number * copies);
        Self {
            vector,
            muladd,
            lat: 4,
            nb,
            mu,
            nu,
            ku: 4,
            ffetch: true,
            ifetch: 0,
            nfetch: 0,
            mc: multiple(rows, mu),
            nc: multiple(columns, nu),
        }
    }
}

impl Level2 {
    /// Good parameters for this processor: enough columns that the vector is seldom read again, and
    /// enough independent sums for the pipeline.
    pub fn model(processor: &Processor) -> Self {
        let vector = processor
            .vectors()
            .last()
            .copied()
            .unwrap_or(Vector::Portable);
        Self {
            vector,
            x_unroll: 2,
            y_unroll: if vector == Vector::Avx512 { 8 } else { 4 },
        }
    }
}

/// Vectors and columns of the block of C: the largest and squarest block that leaves registers for
/// a column of A, for numbers of B, and for products in progress.
fn register_block(vector: Vector, muladd: bool) -> (u32, u32) {
    match (vector, muladd) {
        (Vector::Portable, _) => (4, 4),
        (Vector::Scalar | Vector::Sse2, _) | (Vector::Avx2, false) => (2, 4),
        (Vector::Avx2, true) => (3, 4),
        (Vector::Avx512, _) => (3, 8),
    }
}

/// Steps of K: one way of L1 is for C, and the panels of A and B share the other ways in proportion
/// to their lengths (equation 4 of the paper).
fn depth((bytes, ways): (u64, u32), a: u64, b: u64) -> u32 {
    let way = bytes / u64::from(ways);
    let for_a = (u64::from(ways) - 1) * a / (a + b);
    u32::try_from(for_a.max(1) * way / a).unwrap_or(u32::MAX)
}

/// Bytes of the block of A: the ways of L2, without one for C and without the ways that a panel of
/// B needs.
fn block((bytes, ways): (u64, u32), panel: u64) -> u64 {
    let way = (bytes / u64::from(ways)).max(1);
    let others = 1 + panel.div_ceil(way);
    u64::from(ways).saturating_sub(others).max(1) * way
}

fn multiple(count: u64, unit: u32) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    (count / unit * unit).clamp(unit, 1 << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_valid_here_for_every_instruction_set() {
        let this = Processor::this();
        assert_eq!(Level2::model(&this).is_valid_for(&this), Ok(()));
        let nothing = Processor {
            l1_bytes: None,
            l2_bytes: None,
            l3_bytes: None,
            l1_ways: None,
            l2_ways: None,
            ..this.clone()
        };
        let tiny = Processor {
            l1_bytes: Some(1),
            l2_bytes: Some(0),
            l3_bytes: Some(0),
            l1_ways: Some(1),
            l2_ways: Some(1),
            ..this.clone()
        };
        for processor in [this, nothing, tiny] {
            for vector in processor.vectors() {
                for precision in [Precision::Double, Precision::Single] {
                    let model = Parameters::model_for(vector, &processor, precision);
                    assert_eq!(
                        model.is_valid_for(&processor, precision),
                        Ok(()),
                        "{model:?}"
                    );
                }
            }
        }
    }
}
