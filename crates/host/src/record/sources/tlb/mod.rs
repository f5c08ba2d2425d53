//! Flushes of the translation lookaside buffers.

use super::{Event, EventSource, Need, Origin, Slot, Unit};

pub const SOURCE: EventSource = EventSource {
    name: "tlb",
    about: "TLB flushes by their reason",
    needs: &[Need::Ebpf],
    events,
};

/// Reasons in the order of `enum tlb_flush_reason` (`include/linux/mm_types.h`).
const REASONS: [(&str, &str); 6] = [
    ("switch", "by a switch of address spaces"),
    ("remote", "asked for by another CPU"),
    ("local", "of this CPU for itself"),
    ("local_mm", "of this CPU for a whole address space"),
    ("send", "asked of other CPUs"),
    (
        "wrong_cpu",
        "asked of a CPU that no longer runs the address space",
    ),
];

fn events() -> Vec<Event> {
    REASONS
        .iter()
        .enumerate()
        .map(|(index, (name, about))| Event {
            name: format!("tlb.{name}"),
            about: format!("TLB flushes {about}"),
            unit: Unit::Count,
            default: false,
            origin: Origin::Counted {
                tracepoints: &["tlb_flush"],
                slots: vec![Slot {
                    variable: "slots_tlb",
                    index,
                }],
            },
        })
        .collect()
}
