//! Conversions between counts, indices and floats that lose nothing for the values of this crate.

/// Convert a count to an index.
#[allow(
    clippy::cast_possible_truncation,
    reason = "vtax is for x86-64, where both have 64 bits"
)]
pub fn index(count: u64) -> usize {
    count as usize
}

pub fn count(index: usize) -> u64 {
    index as u64
}

/// Convert a count for a rate; exact below 2^53.
#[allow(
    clippy::cast_precision_loss,
    reason = "a rate needs no more than 53 bits"
)]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// Round a number to the nearest one in single precision.
#[allow(clippy::cast_possible_truncation, reason = "rounding is asked for")]
pub fn single(value: f64) -> f32 {
    value as f32
}

pub fn milliseconds(nanoseconds: u64) -> f64 {
    float(nanoseconds) / 1e6
}
