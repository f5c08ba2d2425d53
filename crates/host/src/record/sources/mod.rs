//! The sources of events: one folder or file each, and one line in [`SOURCES`].

pub mod calls;
pub mod counters;
pub mod faults;
pub mod irq;
pub mod kvm;
pub mod published;
pub mod sched;
pub mod select;
pub mod tlb;

use serde::Serialize;

use crate::record::perf::Request;
use vtax_sys::tree::Tree;

/// Every source; a new one is registered here.
pub const SOURCES: &[EventSource] = &[
    counters::HARDWARE,
    counters::SOFTWARE,
    counters::STEAL,
    sched::SOURCE,
    irq::SOURCE,
    faults::SOURCE,
    calls::SOURCE,
    tlb::SOURCE,
    kvm::SOURCE,
    published::GUEST,
    published::APP,
];

/// What a source declares; help, completion, `vtax doctor` and docs/record.md are made from this.
#[derive(Debug, Clone, Copy)]
pub struct EventSource {
    /// The layer, with which the names of its events begin.
    pub name: &'static str,
    /// What the source counts, in a few words.
    pub about: &'static str,
    /// What all its events need of the machine.
    pub needs: &'static [Need],
    /// The events that the source always has.
    pub events: fn() -> Vec<Event>,
}

/// What a source needs of the machine, named as the check of `vtax doctor` for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// eBPF programs, and type information of the kernel (BTF).
    Ebpf,
    /// Hardware counters.
    Pmu,
    Kvm,
    /// A hypervisor that reports steal time.
    StealClock,
}

/// The unit of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Occurrences.
    Count,
    /// Nanoseconds.
    Ns,
    Bytes,
}

/// One event that can be a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `layer.event`.
    pub name: String,
    /// What the event counts, in a few words.
    pub about: String,
    pub unit: Unit,
    /// Recorded by default.
    pub default: bool,
    pub origin: Origin,
}

/// Where an event's numbers come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A program at a tracepoint counts in its own slot.
    Counted {
        /// The tracepoints that must exist.
        tracepoints: &'static [&'static str],
        /// The variables of the eBPF object that take the slot's number.
        slots: Vec<Slot>,
    },
    /// A perf event that the overflow program reads.
    Perf(Request),
    /// The kernel's count of steal time.
    Steal,
}

/// A variable, or one element of it, that holds the number of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Name of the variable.
    pub variable: &'static str,
    /// The element, of 16 bits.
    pub index: usize,
}

impl Event {
    /// An event that one program counts at one tracepoint, in a variable `slot_TRACEPOINT`.
    fn counted(
        name: &str,
        about: &str,
        tracepoints: &'static [&'static str],
        variable: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            about: about.into(),
            unit: Unit::Count,
            default: false,
            origin: Origin::Counted {
                tracepoints,
                slots: vec![Slot { variable, index: 0 }],
            },
        }
    }

    fn by_default(mut self) -> Self {
        self.default = true;
        self
    }

    fn in_nanoseconds(mut self) -> Self {
        self.unit = Unit::Ns;
        self
    }

    /// The part of the name before the first dot.
    pub fn layer(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }
}

/// The events that sources have on every machine.
pub fn all() -> Vec<Event> {
    SOURCES
        .iter()
        .flat_map(|source| (source.events)())
        .collect()
}

/// [`all`], and what words of a list name besides.
pub fn all_and(tree: &Tree, list: &str) -> Vec<Event> {
    let mut events = all();
    events.extend(counters::named::asked(tree, list));
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::program::variables;
    use std::collections::HashSet;

    #[test]
    fn every_name_is_there_once_and_has_a_layer() {
        let mut names = HashSet::new();
        for event in all() {
            assert!(event.name.contains('.'), "{}", event.name);
            assert!(names.insert(event.name.clone()), "{} twice", event.name);
        }
    }

    #[test]
    fn every_event_is_of_its_source_and_needs_what_that_declares() {
        for source in SOURCES {
            for event in (source.events)() {
                assert_eq!(event.layer(), source.name, "{}", event.name);
                let need = match event.origin {
                    Origin::Perf(_) if source.name == "hw" => Need::Pmu,
                    Origin::Counted { .. } | Origin::Perf(_) => Need::Ebpf,
                    Origin::Steal => Need::StealClock,
                };
                assert!(source.needs.contains(&need), "{}: {need:?}", event.name);
            }
        }
    }

    #[test]
    fn every_slot_is_a_variable_of_the_object() {
        for event in all() {
            if let Origin::Counted { slots, .. } = event.origin {
                for slot in slots {
                    let found = variables::find(slot.variable);
                    let (_, size) = found.unwrap_or_else(|| panic!("{} is absent", slot.variable));
                    assert!(2 * slot.index + 2 <= size, "{slot:?} is beyond its array");
                }
            }
        }
    }
}
