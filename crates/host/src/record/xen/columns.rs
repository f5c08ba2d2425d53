//! The columns of the rows that every trace has.

use super::events::{self, EVENTS, Event};

/// Columns after those of the events: name, description and unit.
pub(super) const OTHERS: [(&str, &str, &str); 3] = [
    (
        "xen.guest_time",
        "time between an entry and the next exit",
        "ns",
    ),
    (
        "xen.run_time",
        "time that virtual CPUs of domains had the CPU",
        "ns",
    ),
    (
        "xen.lost_records",
        "records for which Xen had no room",
        "count",
    ),
];
/// The columns that every trace has; those that are found in it come after them.
pub(super) const COLUMNS: usize = EVENTS.len() + OTHERS.len();
pub(super) const GUEST_TIME: usize = EVENTS.len();
pub(super) const RUN_TIME: usize = EVENTS.len() + 1;
pub(super) const LOST_RECORDS: usize = EVENTS.len() + 2;

/// The class of events that each column comes from.
pub(super) fn column_classes() -> [u32; COLUMNS] {
    std::array::from_fn(|column| match column {
        GUEST_TIME => events::class(events::VMENTRY),
        RUN_TIME => events::class(events::RUNSTATE_CHANGE),
        // Without loss there is no record of it.
        LOST_RECORDS => 0,
        _ => EVENTS.get(column).map_or(0, Event::class),
    })
}
