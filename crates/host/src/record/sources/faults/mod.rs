//! Page faults that the processor raises in this machine.

use super::{Event, EventSource, Need};

pub const SOURCE: EventSource = EventSource {
    name: "faults",
    about: "page faults of programs, by kind, and of the kernel",
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
        Event::counted(
            "faults.anonymous",
            "page faults of programs that find a page of no file, without those of faults.cow",
            &["page_fault_user"],
            "slot_fault_anonymous",
        ),
        Event::counted(
            "faults.file",
            "page faults of programs in a mapping of a file or of shared memory, without those of \
             faults.cow",
            &["page_fault_user"],
            "slot_fault_file",
        ),
        Event::counted(
            "faults.cow",
            "page faults of programs that write to a private mapping of a file, or to private \
             memory that is there but write-protected, as after a fork",
            &["page_fault_user"],
            "slot_fault_cow",
        ),
    ]
}
