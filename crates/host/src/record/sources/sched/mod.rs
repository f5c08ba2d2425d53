//! Events of the scheduler.

use super::{Event, EventSource, Need};

pub const SOURCE: EventSource = EventSource {
    name: "sched",
    about: "context switches, wakeups, migrations, and tasks that begin and end",
    needs: &[Need::Ebpf],
    events,
};

fn events() -> Vec<Event> {
    vec![
        Event::counted(
            "sched.switches",
            "context switches",
            &["sched_switch"],
            "slot_sched_switch",
        )
        .by_default(),
        Event::counted(
            "sched.preemptions",
            "context switches of a task that could have gone on",
            &["sched_switch"],
            "slot_sched_preempted",
        )
        .by_default(),
        Event::counted(
            "sched.wakeups",
            "tasks woken, where they will run",
            &["sched_wakeup"],
            "slot_sched_wakeup",
        )
        .by_default(),
        Event::counted(
            "sched.migrations",
            "tasks moved to another CPU, where it was decided",
            &["sched_migrate_task"],
            "slot_sched_migrate_task",
        )
        .by_default(),
        Event::counted(
            "sched.forks",
            "tasks made",
            &["sched_process_fork"],
            "slot_sched_process_fork",
        ),
        Event::counted(
            "sched.execs",
            "programs started",
            &["sched_process_exec"],
            "slot_sched_process_exec",
        ),
        Event::counted(
            "sched.exits",
            "tasks ended",
            &["sched_process_exit"],
            "slot_sched_process_exit",
        ),
    ]
}
