//! Which counters can be on together, found by trying.
//!
//! How many counters a processor has says little: some events have their own fixed counter, some
//! can use only a few of the general counters, and other users of the PMU, the NMI watchdog and
//! guests' vPMUs hold counters.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use perf_event_open_sys::bindings::PERF_TYPE_SOFTWARE;

use crate::record::perf::{self, Request};

/// Why an event that opens has no counter.
pub const CROWDED: &str = "others (perf, the NMI watchdog, guests) or the reference event hold all \
                       counters that can count it";

/// Says which events can have counters at the same time.
pub trait Pmu {
    /// Can all these events have a counter at the same time, besides the reference event?
    ///
    /// Fails with the errno of a system call when an event cannot be opened for another reason.
    fn holds(&mut self, group: &[Request]) -> Result<bool, Errno>;
}

/// The PMU of one of this machine's CPUs, tried with pinned events.
#[derive(Debug)]
pub struct Kernel {
    cpu: u32,
    /// The reference event, which has its counter before all others.
    _reference: Option<Vec<OwnedFd>>,
}

impl Kernel {
    /// Try on a CPU that already holds the reference event, if it is a perf event.
    ///
    /// Fails with the errno of a system call when the reference event cannot be opened.
    pub fn beside(reference: Option<Request>, cpu: u32) -> Result<Self, Errno> {
        let reference = match reference.filter(|one| one.kind != PERF_TYPE_SOFTWARE) {
            None => None,
            Some(reference) => perf::hold(&[reference], cpu)?,
        };
        Ok(Self {
            cpu,
            _reference: reference,
        })
    }
}

impl Pmu for Kernel {
    fn holds(&mut self, group: &[Request]) -> Result<bool, Errno> {
        perf::hold(group, self.cpu).map(|held| held.is_some())
    }
}

/// Why an event has no counter at the moment, although the PMU can count it.
pub fn crowded_out(pmu: &mut impl Pmu, event: Request) -> Option<String> {
    match pmu.holds(&[event]) {
        Ok(true) => None,
        Ok(false) => Some(CROWDED.into()),
        Err(errno) => Some(format!("perf_event_open: {}", errno.desc())),
    }
}

/// Divide events, by their numbers, into groups of at most `limit` that can have counters at the
/// same time.
///
/// An event that fits no group changes places with others, whatever chain of changes that takes,
/// before it begins a new group. Where the sets that fit are the matchings of events to counters,
/// no division has fewer groups (Edmonds's partition of matroids). For 24 events it tries at most
/// some 500 groups (`tests/grouping.rs`), each with a few system calls.
///
/// Fails as [`Pmu::holds`] does.
pub fn divide(
    pmu: &mut impl Pmu,
    events: &[Request],
    limit: usize,
) -> Result<Vec<Vec<usize>>, Errno> {
    let mut division = Division {
        pmu,
        events,
        limit: limit.max(1),
        groups: Vec::new(),
    };
    for event in 0..events.len() {
        if !division.insert(event)? {
            division.groups.push(vec![event]);
        }
    }
    Ok(division.groups)
}

struct Division<'a, P> {
    pmu: &'a mut P,
    events: &'a [Request],
    limit: usize,
    groups: Vec<Vec<usize>>,
}

impl<P: Pmu> Division<'_, P> {
    /// Put an event into one of the groups, by the shortest chain of changes; false when there is
    /// no chain.
    fn insert(&mut self, event: usize) -> Result<bool, Errno> {
        // The event that takes the place of an event that has to leave.
        let mut successor = BTreeMap::new();
        let mut waiting = VecDeque::from([event]);
        while let Some(mover) = waiting.pop_front() {
            for number in 0..self.groups.len() {
                let group = self.groups.get(number).cloned().unwrap_or_default();
                if group.contains(&mover) {
                    continue;
                }
                if self.fits(&with(&group, mover))? {
                    return self.change(&successor, mover, number);
                }
                for other in group.iter().copied() {
                    let known = successor.contains_key(&other);
                    if !known && self.fits(&with(&without(&group, other), mover))? {
                        successor.insert(other, mover);
                        waiting.push_back(other);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Move an event to a group, its successor to its place, and so on. Nothing moves where the
    /// PMU, which has its own rules, accepts the single steps but not all of them together.
    fn change(
        &mut self,
        successor: &BTreeMap<usize, usize>,
        mover: usize,
        to: usize,
    ) -> Result<bool, Errno> {
        let before = self.groups.clone();
        let (mut mover, mut to) = (Some(mover), to);
        while let Some(event) = mover {
            let from = self.groups.iter().position(|group| group.contains(&event));
            for (number, group) in self.groups.iter_mut().enumerate() {
                if number == to {
                    *group = with(group, event);
                } else {
                    group.retain(|one| *one != event);
                }
            }
            mover = successor.get(&event).copied();
            to = from.unwrap_or(to);
        }
        if successor.is_empty() {
            return Ok(true);
        }
        for (new, old) in self.groups.clone().iter().zip(&before) {
            if new != old && !self.fits(new)? {
                self.groups = before;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fits(&mut self, group: &[usize]) -> Result<bool, Errno> {
        if group.len() > self.limit {
            return Ok(false);
        }
        let events = group.iter().filter_map(|event| self.events.get(*event));
        let events: Vec<Request> = events.copied().collect();
        self.pmu.holds(&events)
    }
}

fn with(group: &[usize], event: usize) -> Vec<usize> {
    let mut group = group.to_vec();
    group.push(event);
    group.sort_unstable();
    group
}

fn without(group: &[usize], event: usize) -> Vec<usize> {
    let others = group.iter().copied();
    others.filter(|other| *other != event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any two events fit but no three, and the two of `apart` never fit.
    struct Odd {
        apart: [u64; 2],
    }

    impl Pmu for Odd {
        fn holds(&mut self, group: &[Request]) -> Result<bool, Errno> {
            let has = |config| group.iter().any(|event| event.config == config);
            Ok(group.len() <= 2 && !(has(self.apart[0]) && has(self.apart[1])))
        }
    }

    fn events(number: u64) -> Vec<Request> {
        (0..number)
            .map(|config| Request {
                config,
                ..Request::default()
            })
            .collect()
    }

    #[test]
    fn an_event_that_fits_no_group_changes_places() {
        let mut pmu = Odd { apart: [2, 3] };
        assert_eq!(
            divide(&mut pmu, &events(4), 9),
            Ok(vec![vec![1, 3], vec![0, 2]])
        );
        assert_eq!(divide(&mut pmu, &events(3), 1).unwrap().len(), 3);
        assert_eq!(divide(&mut pmu, &[], 1), Ok(vec![]));
    }

    /// Other users give a counter back when event 4 is tried, and each step fits alone but not all
    /// steps together.
    struct Shared {
        given_back: bool,
    }

    impl Pmu for Shared {
        fn holds(&mut self, group: &[Request]) -> Result<bool, Errno> {
            let events: Vec<u64> = group.iter().map(|event| event.config).collect();
            self.given_back |= events.contains(&4);
            Ok(match events[..] {
                [_] | [0 | 2, 1 | 3] | [1, 2 | 4] => true,
                [0, 1, 2] => self.given_back,
                _ => false,
            })
        }
    }

    #[test]
    fn changes_that_do_not_fit_together_are_undone() {
        let mut pmu = Shared { given_back: false };
        assert_eq!(
            divide(&mut pmu, &events(5), 9),
            Ok(vec![vec![0, 1], vec![2, 3], vec![4]])
        );
        assert!(pmu.given_back);
    }

    #[test]
    fn software_events_need_no_counter() {
        let clock = Request {
            kind: PERF_TYPE_SOFTWARE,
            ..Request::default()
        };
        let held = Kernel::beside(Some(clock), 0).and_then(|mut kernel| kernel.holds(&[clock; 3]));
        match held {
            Err(Errno::EACCES | Errno::EPERM) => {
                eprintln!("skipped: kernel.perf_event_paranoid forbids perf events");
            }
            held => assert_eq!(held, Ok(true)),
        }
    }
}
