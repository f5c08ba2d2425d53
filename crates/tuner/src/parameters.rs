//! The parameters of a kernel; in files they have ATLAS's names.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::processor::Processor;
use crate::vector::{Precision, Vector};

/// Parameters of GEMM. The field names in files are ATLAS's, in upper case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE", deny_unknown_fields)]
pub struct Parameters {
    pub vector: Vector,
    /// Multiplication and addition are one instruction (FMA).
    pub muladd: bool,
    /// In the separate form, the number of multiplications between a multiplication and the
    /// addition of its product, as far as registers are left. In both forms, the number of
    /// multiplications between a load and its first use, likewise.
    pub lat: u32,
    /// Length of the packed panels: blocking of K (Goto's kc).
    pub nb: u32,
    /// Rows of the block of C in registers; a multiple of the lanes of `vector`.
    pub mu: u32,
    /// Columns of the block of C in registers.
    pub nu: u32,
    /// Steps of K in one iteration of the innermost loop.
    pub ku: u32,
    /// Fetch the block of C into the cache before the loop.
    #[serde(rename = "FFTCH")]
    pub ffetch: bool,
    /// Loads of A and B at the start of an iteration, before the first multiplication.
    #[serde(rename = "IFTCH")]
    pub ifetch: u32,
    /// Iterations of K that A's panel is prefetched ahead; 0: not at all.
    #[serde(rename = "NFTCH")]
    pub nfetch: u32,
    /// Rows of the packed block of A; together with `nb`, what the L2 cache is to hold.
    pub mc: u32,
    /// Columns of the packed panel of B; together with `nb`, what the L3 cache is to hold.
    pub nc: u32,
}

/// The largest packed block or panel, in bytes: a larger one would be no cache blocking.
const MAX_PACKED_BYTES: u64 = 1 << 29;
/// The largest KU, and the largest number of multiplications in one iteration: the loop must fit in
/// a part of the instruction cache.
const MAX_KU: u32 = 64;
const MAX_MULTIPLICATIONS: u32 = 2048;

impl Parameters {
    /// Bytes of the packed block of A: what ATLAS calls `CacheEdge`.
    pub fn cache_edge_bytes(&self, precision: Precision) -> u64 {
        u64::from(self.mc) * u64::from(self.nb) * u64::from(precision.bytes())
    }

    /// Registers that the kernel needs at least: the block of C, one column of A, one number of B,
    /// and in the separate form one product.
    pub fn least_registers(&self, precision: Precision) -> u32 {
        let column = self.mu / self.vector.lanes(precision).max(1);
        column * self.nu + column + 1 + u32::from(!self.muladd)
    }

    /// Can a kernel be generated from these parameters, and run on this processor?
    pub fn is_valid_for(&self, processor: &Processor, precision: Precision) -> Result<(), Error> {
        if !processor.vectors().contains(&self.vector) {
            return Err(Error::NoVector(self.vector));
        }
        self.check_register_block(precision)?;
        if self.muladd && !processor.fuses(self.vector) {
            let reason = format!("no fused multiply-add with VECTOR {}", self.vector);
            return refuse("MULADD", 1, reason);
        }
        let sizes = [
            ("NB", self.nb, 1, 1 << 14),
            ("KU", self.ku, 1, MAX_KU.min(self.nb)),
            ("LAT", self.lat, 0, 64),
            ("IFTCH", self.ifetch, 0, 64),
            ("NFTCH", self.nfetch, 0, 64),
            ("MC", self.mc, 1, 1 << 20),
            ("NC", self.nc, 1, 1 << 20),
        ];
        for (field, value, low, high) in sizes {
            if !(low..=high).contains(&value) {
                return refuse(field, value, format!("must be {low} to {high}"));
            }
        }
        let column = self.mu / self.vector.lanes(precision);
        if column * self.nu * self.ku > MAX_MULTIPLICATIONS {
            let reason = format!("more than {MAX_MULTIPLICATIONS} multiplications in the loop");
            return refuse("KU", self.ku, reason);
        }
        self.check_packed(precision)
    }

    fn check_register_block(&self, precision: Precision) -> Result<(), Error> {
        let lanes = self.vector.lanes(precision);
        if self.mu == 0 || self.mu > 256 || !self.mu.is_multiple_of(lanes) {
            let reason = format!("must be a multiple of {lanes}, 256 at most");
            return refuse("MU", self.mu, reason);
        }
        if self.nu == 0 || self.nu > 64 {
            return refuse("NU", self.nu, "must be 1 to 64".to_owned());
        }
        let (needed, there) = (self.least_registers(precision), self.vector.registers());
        if needed > there {
            let reason = format!("with MU {} needs {needed} registers of {there}", self.mu);
            return refuse("NU", self.nu, reason);
        }
        Ok(())
    }

    fn check_packed(&self, precision: Precision) -> Result<(), Error> {
        let column = u64::from(self.nb) * u64::from(precision.bytes());
        for (field, count) in [("MC", self.mc), ("NC", self.nc)] {
            if u64::from(count) * column > MAX_PACKED_BYTES {
                let reason = format!("times NB is more than {MAX_PACKED_BYTES} bytes");
                return refuse(field, count, reason);
            }
        }
        Ok(())
    }
}

fn refuse(field: &'static str, value: u32, reason: String) -> Result<(), Error> {
    let value = value.to_string();
    Err(Error::Parameter {
        field,
        value,
        reason,
    })
}

/// Parameters of GEMV and GER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level2 {
    #[serde(rename = "VECTOR")]
    pub vector: Vector,
    /// Rows of the matrix in one iteration, in registers of `vector`.
    #[serde(rename = "XUNROLL")]
    pub x_unroll: u32,
    /// Columns of the matrix in one iteration.
    #[serde(rename = "YUNROLL")]
    pub y_unroll: u32,
}

impl Level2 {
    /// Can kernels be generated from these parameters, and run on this processor?
    ///
    /// GEMV with A transposed holds `x_unroll` * `y_unroll` sums in registers, one number of x for
    /// each of `x_unroll`, and one product; the other routines need less. The 12 is due to the
    /// integer registers for addresses.
    pub fn is_valid_for(&self, processor: &Processor) -> Result<(), Error> {
        if !processor.vectors().contains(&self.vector) {
            return Err(Error::NoVector(self.vector));
        }
        for (field, value) in [("XUNROLL", self.x_unroll), ("YUNROLL", self.y_unroll)] {
            if !(1..=12).contains(&value) {
                return refuse(field, value, "must be 1 to 12".to_owned());
            }
        }
        let needed = self.x_unroll * (self.y_unroll + 1) + 1;
        if needed > self.vector.registers() {
            let there = self.vector.registers();
            let reason = format!(
                "with XUNROLL {} needs {needed} registers of {there}",
                self.x_unroll
            );
            return refuse("YUNROLL", self.y_unroll, reason);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    type Change = fn(&mut Parameters);

    fn scalar() -> Parameters {
        Parameters {
            vector: Vector::Scalar,
            muladd: false,
            lat: 4,
            nb: 64,
            mu: 4,
            nu: 2,
            ku: 4,
            ffetch: true,
            ifetch: 4,
            nfetch: 0,
            mc: 64,
            nc: 512,
        }
    }

    #[test]
    fn files_have_the_names_of_atlas() {
        let json = serde_json::to_value(scalar()).unwrap();
        for name in [
            "MULADD", "LAT", "NB", "MU", "NU", "KU", "FFTCH", "IFTCH", "NFTCH", "MC", "NC",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
        assert_eq!(json["VECTOR"], "scalar");
        let back: Parameters = serde_json::from_value(json).unwrap();
        assert_eq!(back, scalar());
        assert_eq!(scalar().cache_edge_bytes(Precision::Double), 64 * 64 * 8);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_cannot_be_generated_is_refused() {
        let processor = Processor::this();
        let valid = |change: Change| {
            let mut parameters = scalar();
            change(&mut parameters);
            parameters.is_valid_for(&processor, Precision::Double)
        };
        assert_eq!(valid(|_| ()), Ok(()));
        let wrong: [(&str, Change); 9] = [
            ("MU", |p| p.mu = 0),
            ("NU", |p| p.nu = 3),
            ("NU", |p| p.nu = 0),
            ("KU", |p| p.ku = 65),
            ("NB", |p| p.nb = 0),
            ("MC", |p| p.mc = u32::MAX),
            ("MULADD", |p| p.muladd = true),
            ("MU", |p| (p.vector, p.mu) = (Vector::Sse2, 3)),
            ("NC", |p| (p.nb, p.nc) = (1 << 14, 1 << 20)),
        ];
        for (field, change) in wrong {
            let error = valid(change).unwrap_err();
            assert!(
                matches!(&error, Error::Parameter { field: found, .. } if *found == field),
                "{field}: {error}"
            );
        }
    }
}
