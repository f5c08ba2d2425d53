//! Single and double precision.

#![allow(
    clippy::inline_always,
    reason = "a fused operation is one instruction only inside a function that is compiled for it"
)]

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Mul, Sub};

use crate::vector::Precision;

/// The type of a matrix's numbers: `f32` or `f64`.
pub trait Element:
    Copy
    + Debug
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + AddAssign
    + Mul<Output = Self>
    + Sub<Output = Self>
    + Into<f64>
    + 'static
{
    const PRECISION: Precision;
    const ZERO: Self;
    const ONE: Self;
    /// Half the distance from 1 to the next number: the bound of the relative error of one rounded
    /// operation (Higham, Accuracy and Stability of Numerical Algorithms, section 2.1).
    const UNIT_ROUNDOFF: f64;

    /// Round a number to the nearest one of this type.
    fn nearest(value: f64) -> Self;

    /// self * factor + term, rounded once.
    #[must_use]
    fn fused(self, factor: Self, term: Self) -> Self;
}

impl Element for f64 {
    const PRECISION: Precision = Precision::Double;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const UNIT_ROUNDOFF: f64 = f64::EPSILON / 2.0;

    fn nearest(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn fused(self, factor: Self, term: Self) -> Self {
        self.mul_add(factor, term)
    }
}

impl Element for f32 {
    const PRECISION: Precision = Precision::Single;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const UNIT_ROUNDOFF: f64 = f32::EPSILON as f64 / 2.0;

    #[allow(
        clippy::cast_possible_truncation,
        reason = "rounding is what it is for"
    )]
    fn nearest(value: f64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn fused(self, factor: Self, term: Self) -> Self {
        self.mul_add(factor, term)
    }
}
