//! System calls by classes that cost alike, and the bytes that they read and write.

pub mod classes;
mod numbers;
pub mod others;

use classes::{CLASSES, Class, ENTRIES, READS, WRITES, indexes, without_class};
use libc::c_long;

use super::{Event, EventSource, Need, Origin, Slot, Unit};

pub const SOURCE: EventSource = EventSource {
    name: "calls",
    about: "system calls by class, and the bytes that they read and write",
    needs: &[Need::Ebpf],
    events,
};

/// Tables of the programs with one element for each number of a call: the slot of its class, of its
/// class where its flags decide, and of its bytes.
pub const BY_NUMBER: &str = "slots_call";
pub const BY_FLAGS: &str = "slots_call_flagged";
pub const BYTES: &str = "slots_call_bytes";
/// The slot of calls that the tables do not have.
pub const OTHER: &str = "slot_call_other";
/// The slot of all calls.
pub const ALL: &str = "slot_call_all";

/// The column of calls that no class has.
pub const OTHER_EVENT: &str = "calls.other";
/// The column of [`classes::CLOCK`].
pub const CLOCK_EVENT: &str = "calls.clock";

fn events() -> Vec<Event> {
    let mut events: Vec<Event> = CLASSES.iter().map(of_class).collect();
    let mut others: Vec<Slot> = slots(BY_NUMBER, without_class()).collect();
    others.push(Slot {
        variable: OTHER,
        index: 0,
    });
    let about = "any other system call, and all of 32-bit programs";
    events.push(event(
        OTHER_EVENT.into(),
        about.into(),
        &["sys_enter"],
        others,
    ));
    let all = Slot {
        variable: ALL,
        index: 0,
    };
    let about = "all system calls, of whichever class";
    events.push(event(
        "calls.all".into(),
        about.into(),
        &["sys_enter"],
        vec![all],
    ));
    events.push(bytes("getdents", "getdents, getdents64", ENTRIES));
    events.push(bytes("read", "read, readv, pread*", READS));
    events.push(bytes(
        "write",
        "write, writev, pwrite*, sendfile, copy_file_range, splice",
        WRITES,
    ));
    events
}

fn of_class(class: &Class) -> Event {
    let flagged: Vec<c_long> = class.flagged.iter().map(|(number, _)| *number).collect();
    let slots = slots(BY_NUMBER, indexes(class.calls)).chain(slots(BY_FLAGS, indexes(&flagged)));
    event(
        format!("calls.{}", class.name),
        format!("system calls: {}", class.about),
        &["sys_enter"],
        slots.collect(),
    )
}

fn bytes(verb: &str, about: &str, calls: &[c_long]) -> Event {
    Event {
        unit: Unit::Bytes,
        ..event(
            format!("calls.{verb}_bytes"),
            format!("results of {about}"),
            &["sys_exit"],
            slots(BYTES, indexes(calls)).collect(),
        )
    }
}

fn event(
    name: String,
    about: String,
    tracepoints: &'static [&'static str],
    slots: Vec<Slot>,
) -> Event {
    Event {
        name,
        about,
        unit: Unit::Count,
        default: false,
        origin: Origin::Counted { tracepoints, slots },
    }
}

fn slots(
    variable: &'static str,
    indexes: impl Iterator<Item = usize>,
) -> impl Iterator<Item = Slot> {
    indexes.map(move |index| Slot { variable, index })
}

/// Whether one of these columns is a class of calls; the column of all calls is none.
pub fn classed(columns: &[String]) -> bool {
    let classes = CLASSES.iter().map(|class| format!("calls.{}", class.name));
    classes
        .chain([OTHER_EVENT.to_owned()])
        .any(|class| columns.contains(&class))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use classes::{NUMBERS, rules};

    /// The columns of each element of a table.
    fn columns(table: &str) -> HashMap<usize, Vec<String>> {
        let mut found: HashMap<usize, Vec<String>> = HashMap::new();
        for event in events() {
            let Origin::Counted { slots, .. } = event.origin else {
                panic!("{} is not counted", event.name);
            };
            for slot in slots.iter().filter(|slot| slot.variable == table) {
                found
                    .entry(slot.index)
                    .or_default()
                    .push(event.name.clone());
            }
        }
        found
    }

    #[test]
    fn a_class_is_one_of_calls_and_no_sum_of_them() {
        let given = |names: &[&str]| {
            classed(
                &names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert!(given(&["faults.user", "calls.stat"]) && given(&["calls.other"]));
        assert!(!given(&["calls.all", "calls.read_bytes", "faults.user"]) && !given(&[]));
    }

    fn column_of(call: c_long) -> String {
        let found = columns(BY_NUMBER);
        found[&usize::try_from(call).unwrap()].join(" and ")
    }

    #[test]
    fn every_number_is_of_exactly_one_column() {
        let found = columns(BY_NUMBER);
        assert_eq!(found.len(), NUMBERS);
        for (number, names) in found {
            assert_eq!(names.len(), 1, "{number}: {names:?}");
        }
        for (number, names) in columns(BY_FLAGS).iter().chain(&columns(BYTES)) {
            assert_eq!(names.len(), 1, "{number}: {names:?}");
        }
    }

    #[test]
    fn every_class_is_one_column_that_is_not_recorded_by_default() {
        let events = events();
        let names: HashSet<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names.len(), events.len());
        let others = [
            "other",
            "all",
            "getdents_bytes",
            "read_bytes",
            "write_bytes",
        ];
        assert_eq!(events.len(), CLASSES.len() + others.len());
        for name in CLASSES.iter().map(|class| class.name).chain(others) {
            assert!(names.contains(format!("calls.{name}").as_str()));
        }
        assert!(events.iter().all(|event| !event.default));
    }

    #[test]
    fn the_flags_that_decide_belong_to_calls_of_another_class() {
        let (by_number, by_flags) = (columns(BY_NUMBER), columns(BY_FLAGS));
        let rules: HashMap<usize, u16> = rules().map(|(call, rule)| (call, rule as u16)).collect();
        assert_eq!(rules.len(), by_flags.len());
        for (number, names) in by_flags {
            assert!(rules.contains_key(&number), "{names:?} without a rule");
            let usual = &by_number[&number];
            assert_ne!(usual, &names);
            assert_ne!(usual[0], OTHER_EVENT);
        }
    }

    #[test]
    fn well_known_calls_have_their_columns() {
        for (call, column) in [
            (libc::SYS_getppid, "calls.null"),
            (libc::SYS_clock_gettime, "calls.clock_call"),
            (libc::SYS_fstat, "calls.fstat"),
            (libc::SYS_ioctl, "calls.fcntl"),
            (libc::SYS_newfstatat, "calls.stat"),
            (libc::SYS_openat, "calls.open"),
            (libc::SYS_close, "calls.close"),
            (libc::SYS_getdents64, "calls.getdents"),
            (libc::SYS_readlinkat, "calls.readlink"),
            (libc::SYS_read, "calls.read"),
            (libc::SYS_pwrite64, "calls.write"),
            (libc::SYS_unlinkat, "calls.unlink"),
            (libc::SYS_renameat2, "calls.rename"),
            (libc::SYS_mkdirat, "calls.mkdir"),
            (libc::SYS_fdatasync, "calls.fsync"),
            (libc::SYS_mmap, "calls.mmap"),
            (libc::SYS_munmap, "calls.munmap"),
            (libc::SYS_madvise, "calls.mprotect"),
            (libc::SYS_brk, "calls.brk"),
            (libc::SYS_clone3, "calls.fork"),
            (libc::SYS_execve, "calls.exec"),
            (libc::SYS_rt_sigaction, "calls.signal_install"),
            (libc::SYS_rt_sigprocmask, "calls.signal_mask"),
            (libc::SYS_tgkill, "calls.signal"),
            (libc::SYS_clock_nanosleep, "calls.sleep"),
            (libc::SYS_ppoll, "calls.poll"),
            (libc::SYS_epoll_pwait, "calls.epoll"),
            (libc::SYS_futex, "calls.futex"),
            (libc::SYS_sendmsg, "calls.socket"),
            (libc::SYS_wait4, "calls.wait"),
            (libc::SYS_exit_group, "calls.other"),
        ] {
            assert_eq!(column_of(call), column, "{call}");
        }
        let flagged = columns(BY_FLAGS);
        for (call, column) in [
            (libc::SYS_openat, "calls.create"),
            (libc::SYS_newfstatat, "calls.fstat"),
            (libc::SYS_unlinkat, "calls.mkdir"),
            (libc::SYS_clone, "calls.thread"),
            (libc::SYS_clone3, "calls.thread"),
        ] {
            assert_eq!(flagged[&usize::try_from(call).unwrap()], [column]);
        }
    }
}
