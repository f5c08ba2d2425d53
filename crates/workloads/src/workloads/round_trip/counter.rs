//! A counter that detects changes by others.

use std::hint::black_box;

/// The count is kept in memory twice, the second time inverted.
#[derive(Debug)]
pub struct Counter {
    cells: Box<[u64; 2]>,
    errors: u64,
}

impl Counter {
    pub fn new() -> Self {
        Self {
            cells: Box::new([0, !0]),
            errors: 0,
        }
    }

    pub fn increment(&mut self) {
        let [value, inverse] = black_box(self.cells.as_mut());
        self.errors += u64::from(*value != !*inverse);
        *value = value.wrapping_add(1);
        *inverse = !*value;
    }

    pub fn value(&self) -> u64 {
        self.cells[0]
    }

    /// How often the counter was wrong, including now: it must have counted the rounds.
    pub fn errors(&self, rounds: u64) -> u64 {
        let [value, inverse] = *black_box(&self.cells).as_ref();
        self.errors + u64::from(value != rounds || value != !inverse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_counter_is_noticed() {
        let mut counter = Counter::new();
        for _ in 0..3 {
            counter.increment();
        }
        assert_eq!((counter.value(), counter.errors(3)), (3, 0));
        assert_eq!(counter.errors(4), 1);
        counter.cells[1] ^= 2;
        assert_eq!(counter.errors(3), 1);
        counter.increment();
        assert_eq!(counter.errors(4), 1);
    }
}
