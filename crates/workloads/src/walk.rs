//! The order in which pages are visited: every page once, then every page once more.

use crate::pattern;

/// An endless walk over pages, one period after the other.
#[derive(Debug, Clone)]
pub struct Walk {
    pages: u64,
    next: u64,
    period: u64,
    order: Order,
}

#[derive(Debug, Clone)]
enum Order {
    Ascending,
    Shuffled { seed: u64, permutation: Permutation },
}

impl Walk {
    /// Walk from the first page to the last, and again; `pages` is at least 1.
    pub fn ascending(pages: u64) -> Self {
        Self::new(pages, 0, Order::Ascending)
    }

    /// Walk in a random order that differs in each period; begins with period `period`.
    pub fn shuffled(pages: u64, seed: u64, period: u64) -> Self {
        let permutation = Permutation::new(pages, pattern::word(seed, period));
        Self::new(pages, period, Order::Shuffled { seed, permutation })
    }

    fn new(pages: u64, period: u64, order: Order) -> Self {
        Self {
            pages,
            next: 0,
            period,
            order,
        }
    }

    fn begin_next_period(&mut self) {
        self.next = 0;
        self.period += 1;
        if let Order::Shuffled { seed, permutation } = &mut self.order {
            *permutation = Permutation::new(self.pages, pattern::word(*seed, self.period));
        }
    }

    /// The next page.
    pub fn step(&mut self) -> u64 {
        if self.next == self.pages {
            self.begin_next_period();
        }
        let position = self.next;
        self.next += 1;
        match &self.order {
            Order::Ascending => position,
            Order::Shuffled { permutation, .. } => permutation.at(position),
        }
    }
}

/// A keyed bijection of 0..size without a table.
///
/// Each step is a bijection of the next power of two; values outside are sent through again
/// until they are inside ("cycle walking", Black and Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002), which is less than two steps on average.
#[derive(Debug, Clone)]
pub struct Permutation {
    size: u64,
    mask: u64,
    shift: u32,
    key: [u64; 3],
}

impl Permutation {
    /// A bijection of 0..size for this key; `size` is at least 1.
    pub fn new(size: u64, key: u64) -> Self {
        let bits = 64 - size.max(1).saturating_sub(1).leading_zeros();
        let key = |position| pattern::word(key, position);
        Self {
            size,
            mask: u64::MAX.checked_shr(64 - bits).unwrap_or(0),
            shift: (bits / 2).max(1),
            // Odd factors are bijections of each power of two.
            key: [key(0), key(1) | 1, key(2) | 1],
        }
    }

    /// The value at a position below the size.
    pub fn at(&self, position: u64) -> u64 {
        let mut value = position;
        loop {
            value = self.scatter(value);
            if value < self.size {
                return value;
            }
        }
    }

    fn scatter(&self, value: u64) -> u64 {
        let [offset, first, second] = self.key;
        let value = value.wrapping_add(offset) & self.mask;
        let value = (value ^ (value >> self.shift)).wrapping_mul(first) & self.mask;
        let value = (value ^ (value >> self.shift)).wrapping_mul(second) & self.mask;
        value ^ (value >> self.shift)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_period_visits_each_page_once(pages in 1..3000_u64, seed in any::<u64>()) {
            let mut walk = Walk::shuffled(pages, seed, 0);
            for _ in 0..3 {
                let visited: BTreeSet<u64> = (0..pages).map(|_| walk.step()).collect();
                prop_assert!(visited.iter().copied().eq(0..pages));
            }
        }

        #[test]
        fn a_walk_can_begin_at_any_period(
            pages in 1..500_u64, seed in any::<u64>(), period in 0..5_u64,
        ) {
            let mut whole = Walk::shuffled(pages, seed, 0);
            let mut later = Walk::shuffled(pages, seed, period);
            for _ in 0..pages * period {
                whole.step();
            }
            for _ in 0..2 * pages {
                prop_assert_eq!(whole.step(), later.step());
            }
        }
    }

    #[test]
    fn an_ascending_walk_repeats() {
        let mut walk = Walk::ascending(3);
        let pages: Vec<u64> = (0..7).map(|_| walk.step()).collect();
        assert_eq!(pages, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn neighbours_are_far_apart() {
        let mut walk = Walk::shuffled(1 << 12, 1, 0);
        let pages: Vec<u64> = (0..1 << 12).map(|_| walk.step()).collect();
        let near = pages
            .windows(2)
            .filter(|pair| pair[0].abs_diff(pair[1]) < 8);
        // A random order is expected to have 15 of 4095.
        assert!(near.count() < 60);
    }
}
