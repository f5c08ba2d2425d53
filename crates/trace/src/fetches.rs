//! The pages in which the guest executes, each once between two operations.
//!
//! What a VMM has mapped stays mapped until the guest does something to its tables, so that only
//! the first instruction in a page can exit after that.

/// Pages that are remembered; two pages of one place take turns, and are both told of again.
const PLACES: usize = 1024;

pub struct Fetches {
    /// The page, and the number of operations that were told when it was.
    seen: Box<[(u64, u64); PLACES]>,
    operations: u64,
}

impl Fetches {
    pub fn new() -> Self {
        Self {
            seen: Box::new([(0, 0); PLACES]),
            operations: 1,
        }
    }

    /// Called at an operation.
    pub fn forget(&mut self) {
        self.operations += 1;
    }

    /// Is the page new since the last operation?
    pub fn is_new(&mut self, page: u64) -> bool {
        let now = (page, self.operations);
        // The remainder is below PLACES.
        let place = usize::try_from(page % PLACES as u64).unwrap_or(0);
        std::mem::replace(&mut self.seen[place], now) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_new_once_after_each_operation() {
        let mut fetches = Fetches::new();
        for _ in 0..3 {
            assert!(fetches.is_new(0));
            assert!(fetches.is_new(7));
            assert!(!fetches.is_new(0) && !fetches.is_new(7));
            assert!(fetches.is_new(7 + PLACES as u64));
            fetches.forget();
        }
    }
}
