//! When a phase's system software does something, at constant rates.

use super::Changes;

/// The kind of occurrence that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Allocation,
    Protect,
    Fork,
    Switch,
    SystemCall,
    OtherExit,
}

/// The next occurrence of each kind, in instructions since the phase's steady part began.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    kinds: Vec<Kind>,
}

#[derive(Clone, Debug)]
struct Kind {
    due: Due,
    every: f64,
    next: f64,
}

impl Calendar {
    pub(super) fn new(changes: &Changes) -> Self {
        let rates = [
            (Due::Allocation, changes.allocations),
            (Due::Protect, changes.protects),
            (Due::Fork, changes.forks),
            (Due::Switch, changes.switches),
            (Due::SystemCall, changes.system_calls),
            (Due::OtherExit, changes.other_exits),
        ];
        let kind = |(due, rate): (Due, f64)| Kind {
            due,
            every: 1e6 / rate,
            next: 1e6 / rate,
        };
        Self {
            kinds: rates
                .into_iter()
                .filter(|(_, rate)| *rate > 0.0)
                .map(kind)
                .collect(),
        }
    }

    /// When the next occurrence is due; infinite when nothing is ever due.
    pub(super) fn next(&self) -> f64 {
        self.kinds
            .iter()
            .map(|kind| kind.next)
            .fold(f64::INFINITY, f64::min)
    }

    /// Takes one occurrence that is due at `now`, if any; call this until there is none.
    pub(super) fn take(&mut self, now: f64) -> Option<Due> {
        let kind = self.kinds.iter_mut().find(|kind| kind.next <= now)?;
        kind.next += kind.every;
        Some(kind.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_million_instructions() {
        let changes = Changes {
            forks: 2.0,
            system_calls: 4.0,
            ..Changes::default()
        };
        let mut calendar = Calendar::new(&changes);
        assert!((calendar.next() - 250_000.0).abs() < 1e-6);
        let mut found = Vec::new();
        while let Some(due) = calendar.take(1e6) {
            found.push(due);
        }
        let count = |due| found.iter().filter(|&&other| other == due).count();
        assert_eq!((count(Due::Fork), count(Due::SystemCall)), (2, 4));
        assert!(Calendar::new(&Changes::default()).next().is_infinite());
    }
}
