//! Decides when a workload ends.

use std::time::{Duration, Instant};

use vtax_sys::calls::signals;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Count(u64),
    /// The first moment between two batches of operations after this time.
    Time(Duration),
}

/// Hands out operations until the bound is reached or a signal asks to end.
#[derive(Debug)]
pub struct Limit {
    bound: Bound,
    done: u64,
    begin: Option<Instant>,
}

impl Limit {
    /// The time begins with the first grant, so that preparation is not part of it.
    pub fn new(bound: Bound) -> Self {
        Self {
            bound,
            done: 0,
            begin: None,
        }
    }

    /// The number of operations to do next, at most `batch`; `None` at the end.
    ///
    /// They count as done: a caller that does fewer must call [`Limit::take_back`].
    pub fn grant(&mut self, batch: u64) -> Option<u64> {
        let begin = *self.begin.get_or_insert_with(Instant::now);
        let left = match self.bound {
            _ if signals::asked_to_end() => 0,
            Bound::Count(count) => count.saturating_sub(self.done),
            Bound::Time(time) if begin.elapsed() >= time => 0,
            Bound::Time(_) => u64::MAX,
        };
        let granted = left.min(batch);
        self.done += granted;
        (granted > 0).then_some(granted)
    }

    /// Take back operations that were granted but not done.
    pub fn take_back(&mut self, operations: u64) {
        self.done = self.done.saturating_sub(operations);
    }

    /// Operations done so far.
    pub fn done(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_met_exactly() {
        let mut limit = Limit::new(Bound::Count(10));
        let grants: Vec<_> = std::iter::from_fn(|| limit.grant(4)).collect();
        assert_eq!(grants, [4, 4, 2]);
        assert_eq!(limit.done(), 10);
    }

    #[test]
    fn time_runs_out() {
        let begin = Instant::now();
        let mut limit = Limit::new(Bound::Time(Duration::from_millis(30)));
        while limit.grant(5).is_some() {}
        assert!(begin.elapsed() >= Duration::from_millis(30));
        assert!(limit.done() >= 5 && limit.done().is_multiple_of(5));
    }
}
