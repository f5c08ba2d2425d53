//! Page faults that the processor raises in this machine.

use super::{Event, EventSource, Need};

pub const SOURCE: EventSource = EventSource {
    name: "faults",
    about: "page faults of programs and of the kernel",
    needs: &[Need::Ebpf],
    events,
};

fn events() -> Vec<Event> {
    vec![
        Event::counted(
            "faults.user",
            "page faults of programs",
            &["page_fault_user"],
            "slot_page_fault_user",
        )
        .by_default(),
        Event::counted(
            "faults.kernel",
            "page faults of the kernel",
            &["page_fault_kernel"],
            "slot_page_fault_kernel",
        )
        .by_default(),
    ]
}
