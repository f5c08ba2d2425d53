//! The addresses of a phase.

use rand::Rng;
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::layout::{FOOTPRINT, HOT, HOT_BYTES};
use super::{Mix, Phase};
use crate::model::address::{Gva, PAGE_SHIFT, Reference};

/// Chooses the addresses of a phase, with one draw of random bits for each.
#[derive(Clone, Debug)]
pub(super) struct References {
    /// Upper ends of the shares, in 2^24ths: sequential, random, Zipf.
    ends: [u64; 3],
    /// Share of writes in 256ths.
    writes: u64,
    bytes: u64,
    stride: u64,
    at: u64,
    zipf: Option<Zipf<f64>>,
    /// Multiplier that spreads Zipf's ranks over the pages; coprime to their number.
    scatter: u64,
}

impl References {
    pub(super) fn new(phase: &Phase) -> Self {
        let Mix {
            sequential,
            random,
            zipf,
            exponent,
            stride,
            scatter,
        } = phase.mix;
        let bytes = phase.footprint.0;
        let pages = bytes >> PAGE_SHIFT;
        let end = |share: f64| fraction(share, 24);
        Self {
            ends: [
                end(sequential),
                end(sequential + random),
                end(sequential + random + zipf),
            ],
            writes: fraction(phase.write_share, 8),
            bytes,
            stride: stride.0,
            at: 0,
            zipf: (zipf > 0.0)
                .then(|| Zipf::new(pages as f64, exponent).ok())
                .flatten(),
            scatter: if scatter { coprime(pages) } else { 1 },
        }
    }

    /// Appends `count` references to `block`.
    pub(super) fn fill(
        &mut self,
        block: &mut Vec<Reference>,
        count: usize,
        random: &mut Xoshiro256PlusPlus,
    ) {
        block.extend((0..count).map(|_| self.next(random)));
    }

    #[inline]
    fn next(&mut self, random: &mut Xoshiro256PlusPlus) -> Reference {
        let bits = random.next_u64();
        let (choice, write, rest) = (bits >> 40, (bits >> 32) & 0xff, bits & 0xffff_ffff);
        let offset = if choice < self.ends[0] {
            self.at += self.stride;
            if self.at >= self.bytes {
                self.at %= self.bytes;
            }
            self.at
        } else if choice < self.ends[1] {
            scale(rest, self.bytes)
        } else if choice < self.ends[2] {
            self.popular(rest, random)
        } else {
            return Reference::new(Gva(HOT.0 + scale(rest, HOT_BYTES)), write < self.writes);
        };
        Reference::new(Gva(FOOTPRINT.0 + offset), write < self.writes)
    }

    fn popular(&self, rest: u64, random: &mut Xoshiro256PlusPlus) -> u64 {
        let pages = self.bytes >> PAGE_SHIFT;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 1 to pages
        let rank = self.zipf.as_ref().map_or(1.0, |zipf| zipf.sample(random)) as u64;
        // Both factors are below 2^28: a footprint has at most 2^40 bytes.
        let page = rank * self.scatter % pages;
        (page << PAGE_SHIFT) + (rest & 0xfff)
    }
}

/// 32 random bits as a number below `limit`.
#[expect(clippy::cast_possible_truncation)] // it is below `limit`
const fn scale(bits: u64, limit: u64) -> u64 {
    (((bits as u128) * (limit as u128)) >> 32) as u64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of 0 to 1
fn fraction(share: f64, bits: u32) -> u64 {
    (share.clamp(0.0, 1.0) * f64::from(1_u32 << bits)).round() as u64
}

/// A multiplier near `pages` over the golden ratio without a common divisor with it.
fn coprime(pages: u64) -> u64 {
    let start = scale(0x9e37_79b9, pages).max(1);
    (start..=start + pages)
        .find(|&candidate| divisor(candidate, pages) == 1)
        .unwrap_or(1)
}

const fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn scattering_reaches_every_page() {
        for pages in [1_u64, 2, 7, 1000, 4096] {
            let scatter = coprime(pages);
            let reached: HashSet<_> = (1..=pages).map(|rank| rank * scatter % pages).collect();
            assert_eq!(reached.len() as u64, pages);
        }
    }
}
