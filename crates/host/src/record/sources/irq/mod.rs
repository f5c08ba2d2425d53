//! Interrupts of devices and of the processor itself, and soft interrupts.

use super::{Event, EventSource, Need, Origin, Slot, Unit};

pub const SOURCE: EventSource = EventSource {
    name: "irq",
    about: "interrupts of devices and of the processor, and soft interrupts",
    needs: &[Need::Ebpf],
    events,
};

/// Names of the soft interrupts in the order of their numbers (include/linux/interrupt.h).
const SOFTIRQS: [&str; 10] = [
    "hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu",
];

fn events() -> Vec<Event> {
    let mut events = vec![
        Event::counted(
            "irq.device",
            "interrupts of devices",
            &["irq_handler_entry"],
            "slot_irq_handler_entry",
        )
        .by_default(),
        Event::counted(
            "irq.timer",
            "interrupts of the local timer; a reference that is a clock makes one a row",
            &["local_timer_entry"],
            "slot_local_timer_entry",
        )
        .by_default(),
        Event::counted(
            "irq.reschedule",
            "requests of other CPUs to schedule",
            &["reschedule_entry"],
            "slot_reschedule_entry",
        )
        .by_default(),
        Event::counted(
            "irq.call",
            "function calls from other CPUs, to several",
            &["call_function_entry"],
            "slot_call_function_entry",
        )
        .by_default(),
        Event::counted(
            "irq.call_single",
            "function calls from other CPUs, to one",
            &["call_function_single_entry"],
            "slot_call_function_single_entry",
        )
        .by_default(),
        Event::counted(
            "irq.work",
            "work put off from a non-maskable interrupt",
            &["irq_work_entry"],
            "slot_irq_work_entry",
        ),
    ];
    events.extend(SOFTIRQS.iter().enumerate().map(|(index, name)| Event {
        name: format!("irq.soft.{name}"),
        about: format!("runs of the soft interrupt {name}"),
        unit: Unit::Count,
        default: matches!(*name, "timer" | "net_tx" | "net_rx" | "block" | "sched"),
        origin: Origin::Counted {
            tracepoints: &["softirq_entry"],
            slots: vec![Slot {
                variable: "slots_softirq",
                index,
            }],
        },
    }));
    events
}
