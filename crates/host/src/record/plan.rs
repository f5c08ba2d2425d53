//! What will be recorded: columns, their slots in a row, and the programs they need.

use std::time::Duration;

use nix::errno::Errno;
use perf_event_open_sys::bindings::PERF_TYPE_SOFTWARE;
use serde::Serialize;

use crate::record::availability::Machine;
use crate::record::difference::Location;
use crate::record::interval::Interval;
use crate::record::options::RecordOptions;
use crate::record::perf::Request;
use crate::record::program::{Settings, Whose};
use crate::record::ring::Shape;
use crate::record::rotation::Groups;
use crate::record::row::{HEADER_WORDS, MAX_ABSOLUTE, MAX_SLOTS};
use crate::record::sources::counters::grouping::{self, Pmu};
use crate::record::sources::select::Choice;
use crate::record::sources::{Event, Origin};
use crate::record::stacks::layout::STACK_WORDS;
use crate::record::target::Target;
use vtax_sys::terminal::Error;

/// Memory of all rings together, and the least and most rows of one CPU.
const RING_BYTES: usize = 8 << 20;
const FEWEST_ROWS: usize = 64;
const MOST_ROWS: usize = 4096;

/// An event that this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    pub name: String,
    pub reason: String,
}

/// The columns of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// The events, in the order of their columns.
    pub events: Vec<Event>,
    /// The place of each event in a row.
    pub locations: Vec<Location>,
    /// The perf events, in the order in which rows read them.
    pub perf: Vec<Request>,
    /// Is the steal clock read?
    pub steal: bool,
    /// Counters in a row.
    pub slots: usize,
    /// Events that were asked for but are not available.
    pub unavailable: Vec<Unavailable>,
}

impl Columns {
    /// Give every event that is available its slots, and list the others.
    ///
    /// `lacks` says why an event is not available. Fails when an event asked for by name is not
    /// available, or when the events are too many for a row.
    pub fn arrange(
        choices: Vec<Choice>,
        mut lacks: impl FnMut(&Event) -> Option<String>,
    ) -> Result<Self, Error> {
        let mut columns = Self::default();
        for choice in choices {
            match lacks(&choice.event) {
                None => columns.events.push(choice.event),
                Some(reason) if choice.by_name => {
                    return Err(Error::failure(
                        format!("event {}", choice.event.name),
                        reason,
                        "leave it out, or see vtax record --list",
                    ));
                }
                Some(reason) => columns.unavailable.push(Unavailable {
                    name: choice.event.name,
                    reason,
                }),
            }
        }
        columns.assign_slots()?;
        Ok(columns)
    }

    /// Assign slots to the counted events first, then to the read events, three values each.
    fn assign_slots(&mut self) -> Result<(), Error> {
        let counted = self
            .events
            .iter()
            .filter(|event| matches!(event.origin, Origin::Counted { .. }))
            .count();
        // The steal clock is read after the perf events, so its column is the last too.
        self.events
            .sort_by_key(|event| matches!(event.origin, Origin::Steal));
        let (mut next, mut read) = (0, counted);
        for event in &self.events {
            let location = match event.origin {
                Origin::Counted { .. } => {
                    next += 1;
                    Location::Counted(next - 1)
                }
                Origin::Perf(request) => {
                    self.perf.push(request);
                    read += 3;
                    Location::Perf(read - 3)
                }
                Origin::Steal => {
                    self.steal = true;
                    read += 3;
                    Location::Clock(read - 3)
                }
            };
            self.locations.push(location);
        }
        self.slots = read;
        let absolutes = (read - counted) / 3;
        if self.slots > MAX_SLOTS || absolutes > MAX_ABSOLUTE {
            return Err(Error::misuse(
                "--events",
                format!(
                    "{} events are too many for a row ({MAX_ABSOLUTE} counters that are read, \
                     {MAX_SLOTS} values)",
                    self.events.len()
                ),
                "name fewer",
            ));
        }
        Ok(())
    }

    /// Which perf events are on together. Software events need no counter and are always on, unless
    /// the number of counters is limited.
    ///
    /// Fails with the errno of a system call when an event can no longer be opened.
    pub fn divide(&self, pmu: &mut impl Pmu, limit: Option<usize>) -> Result<Groups, Errno> {
        let all = 0..self.perf.len();
        let (always, scarce): (Vec<usize>, Vec<usize>) = all.partition(|number| {
            let event = self.perf.get(*number);
            limit.is_none() && event.is_some_and(|event| event.kind == PERF_TYPE_SOFTWARE)
        });
        let events = scarce.iter().filter_map(|number| self.perf.get(*number));
        let events: Vec<Request> = events.copied().collect();
        let found = grouping::divide(pmu, &events, limit.unwrap_or(usize::MAX))?;
        let numbered = |group: Vec<usize>| {
            let numbers = group.into_iter().filter_map(|at| scarce.get(at));
            numbers.copied().collect()
        };
        Ok(Groups {
            turns: found.into_iter().map(numbered).collect(),
            always,
        })
    }

    /// The group of perf events that each column takes turns with; for other columns the value
    /// means nothing.
    pub fn groups(&self, groups: &Groups) -> Vec<usize> {
        let mut perf = 0..self.perf.len();
        let mut group = |location: &Location| match location {
            Location::Perf(_) => perf.next().map_or(0, |event| groups.of(event)),
            Location::Counted(_) | Location::Clock(_) => 0,
        };
        self.locations.iter().map(&mut group).collect()
    }

    /// The name of a perf event.
    pub fn perf_name(&self, perf: usize) -> Option<&str> {
        let columns = self.events.iter().zip(&self.locations);
        let mut read = columns.filter(|(_, location)| matches!(location, Location::Perf(_)));
        read.nth(perf).map(|(event, _)| event.name.as_str())
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|event| event.name == name)
    }

    /// Names of the columns.
    pub fn names(&self) -> Vec<String> {
        self.events.iter().map(|event| event.name.clone()).collect()
    }

    /// The settings of the programs for these columns.
    pub fn settings(
        &self,
        machine: &Machine,
        shape: Shape,
        interval: &Interval,
        options: &RecordOptions,
    ) -> Settings {
        let whose = match options.target {
            Target::System => Whose::Everybody,
            Target::Machines(None) => Whose::Machines,
            _ => Whose::Targets,
        };
        let mut slots = Vec::new();
        let mut tracepoints = Vec::new();
        for (event, location) in self.events.iter().zip(&self.locations) {
            if let (
                Origin::Counted {
                    tracepoints: needed,
                    slots: variables,
                },
                Location::Counted(at),
            ) = (&event.origin, location)
            {
                tracepoints.extend(needed.iter().copied());
                let number = u16::try_from(*at).unwrap_or(u16::MAX);
                slots.extend(
                    variables
                        .iter()
                        .map(|slot| (slot.variable, slot.index, number)),
                );
            }
        }
        // These programs say which task runs and whose guest, so they are attached even when their
        // events are not recorded.
        tracepoints.extend([
            "sched_switch",
            "kvm_entry",
            "kvm_exit",
            "kvm_userspace_exit",
        ]);
        let reference = interval.event().and_then(|name| self.find(name));
        let reference = reference.and_then(|at| self.locations.get(at));
        if interval.event().is_some() {
            // A CPU that counts nothing else ends its rows by its timer's interrupts.
            tracepoints.push("local_timer_entry");
        }
        if whose != Whose::Everybody {
            tracepoints.extend(["sched_process_fork", "sched_process_exit"]);
        }
        tracepoints.sort_unstable();
        tracepoints.dedup();
        tracepoints.retain(|name| machine.has(name));
        let counted = self.slots - 3 * (self.perf.len() + usize::from(self.steal));
        Settings {
            shape,
            period: interval.period(),
            of_time: matches!(interval, Interval::Time(_)),
            reference_slot: match reference {
                Some(Location::Counted(slot)) => u16::try_from(*slot).ok(),
                _ => None,
            },
            whose,
            perf_events: u32::try_from(self.perf.len()).unwrap_or(0),
            steal: self.steal,
            absolute_slot: u16::try_from(counted).unwrap_or(u16::MAX),
            slots,
            without_vdso: machine.without_vdso,
            tracepoints,
            call_sites: options.call_sites,
            stacks: options.stacks,
        }
    }

    /// The rings for these columns, with stacks or without; `rows`: as the user wants, otherwise as
    /// many as fit the memory.
    pub fn shape(&self, cpus: u32, rows: Option<u32>, stacks: bool) -> Shape {
        let stack = if stacks { STACK_WORDS } else { 0 };
        let row = (HEADER_WORDS + self.slots + stack) * 8;
        let fit = RING_BYTES / row / cpus.max(1) as usize;
        let fit = fit.clamp(FEWEST_ROWS, MOST_ROWS);
        // The largest power of two that is not above the number.
        let fit = 1_u32 << fit.ilog2();
        Shape {
            cpus,
            rows: rows.map_or(fit, u32::next_power_of_two),
            slots: self.slots,
            stack,
        }
    }
}

/// How often the rings must be emptied so that none fills up and every flush is in time.
pub fn drain_period(shape: Shape, shortest: Duration, flush: Duration) -> Duration {
    // A third of the ring: the recorder may be late by twice that time.
    let fills = shortest.saturating_mul(shape.rows);
    (fills / 3).clamp(
        Duration::from_millis(1),
        flush.max(Duration::from_millis(1)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sources::{self, select};

    fn columns(list: &str) -> Result<Columns, Error> {
        let choices = select::select(&sources::all(), list)?;
        Columns::arrange(choices, |_| None)
    }

    #[test]
    fn no_two_columns_share_a_place() {
        let columns = columns("sched,sw,steal,irq").unwrap();
        let mut taken = std::collections::HashSet::new();
        for location in &columns.locations {
            let used: Vec<usize> = match location {
                Location::Counted(slot) => vec![*slot],
                Location::Perf(slot) | Location::Clock(slot) => (*slot..slot + 3).collect(),
            };
            for slot in used {
                assert!(slot < columns.slots && taken.insert(slot), "{location:?}");
            }
        }
        assert_eq!(taken.len(), columns.slots);
        assert!(matches!(columns.locations.last(), Some(Location::Clock(_))));
    }

    #[test]
    fn all_counted_events_fit_a_row_beside_the_most_counters_that_are_read() {
        let counted = |event: &&Event| matches!(event.origin, Origin::Counted { .. });
        let events = sources::all();
        let slots = events.iter().filter(counted).count() + 3 * MAX_ABSOLUTE;
        assert!(slots <= MAX_SLOTS, "{slots}");
    }

    #[test]
    fn rings_are_bounded_and_emptied_in_time() {
        let columns = columns("sched,faults").unwrap();
        for cpus in [1, 2, 64, 1024] {
            let shape = columns.shape(cpus, None, true);
            assert!(shape.rows.is_power_of_two());
            let bytes = shape.all_rows() as usize * shape.row_words() * 8;
            assert!(bytes <= RING_BYTES.max(FEWEST_ROWS * shape.row_words() * 8 * cpus as usize));
            let every = Duration::from_micros(100);
            let period = drain_period(shape, every, Duration::from_secs(1));
            assert!(period <= every * shape.rows / 2, "{cpus}: {period:?}");
        }
        assert_eq!(columns.shape(2, Some(5), false).rows, 8);
    }
}
