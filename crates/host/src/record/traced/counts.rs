//! The columns of a traced program, by the same table of classes as the eBPF programs.

use std::collections::HashMap;

use crate::record::sources::calls::classes::{self, Rule};
use crate::record::sources::calls::{self, ALL, BY_FLAGS, BY_NUMBER, BYTES, OTHER};
use crate::record::sources::{self, Event, Origin, Slot, Unit};

const EXECS: Slot = Slot {
    variable: "slot_sched_process_exec",
    index: 0,
};
const MINOR: Slot = Slot {
    variable: "minor",
    index: 0,
};
/// Clocks that the vDSO reads (lib/vdso/gettimeofday.c).
const VDSO_CLOCKS: [i32; 7] = [
    libc::CLOCK_REALTIME,
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_MONOTONIC_RAW,
    libc::CLOCK_REALTIME_COARSE,
    libc::CLOCK_MONOTONIC_COARSE,
    libc::CLOCK_BOOTTIME,
    libc::CLOCK_TAI,
];

/// Events and how often each came.
pub struct Counts {
    pub events: Vec<Event>,
    pub sums: Vec<u64>,
    /// The event of each slot, of which a recorder's programs would have numbers.
    of: HashMap<(&'static str, usize), usize>,
    rules: HashMap<usize, Rule>,
}

impl Counts {
    /// All classes of calls, programs started, and page faults.
    pub fn new() -> Self {
        let mut events: Vec<Event> = sources::all()
            .into_iter()
            .filter(|event| event.layer() == calls::SOURCE.name || event.name == "sched.execs")
            .collect();
        events.push(Event {
            name: "faults.minor".into(),
            about: "page faults without reading from a disk, of any kind and in the kernel too"
                .into(),
            unit: Unit::Count,
            default: false,
            origin: Origin::Counted {
                tracepoints: &[],
                slots: vec![MINOR],
            },
        });
        let mut of = HashMap::new();
        for (column, event) in events.iter().enumerate() {
            if let Origin::Counted { slots, .. } = &event.origin {
                of.extend(
                    slots
                        .iter()
                        .map(|slot| ((slot.variable, slot.index), column)),
                );
            }
        }
        Self {
            sums: vec![0; events.len()],
            events,
            of,
            rules: classes::rules().collect(),
        }
    }

    /// Count a call; its number is `None` where it is not of this architecture. `word` reads the
    /// program's memory, and is 0 where that cannot be read.
    pub fn entered(
        &mut self,
        number: Option<usize>,
        arguments: [u64; 6],
        word: impl Fn(u64) -> u64,
    ) {
        self.add(ALL, 0, 1);
        let number = number.filter(|number| *number < classes::NUMBERS);
        let Some(number) = number else {
            return self.add(OTHER, 0, 1);
        };
        let rule = self.rules.get(&number);
        let flagged = rule.is_some_and(|rule| is_flagged(*rule, arguments, word));
        self.add(if flagged { BY_FLAGS } else { BY_NUMBER }, number, 1);
    }

    /// Are the results of this call numbers of bytes?
    pub fn has_bytes(&self, number: usize) -> bool {
        self.of.contains_key(&(BYTES, number))
    }

    pub fn returned(&mut self, number: usize, bytes: u64) {
        self.add(BYTES, number, bytes);
    }

    /// The command's program has just been started: what came before was not its own.
    pub fn begin(&mut self) {
        self.sums.fill(0);
        self.add(ALL, 0, 1);
        self.add(BY_NUMBER, usize::try_from(libc::SYS_execve).unwrap_or(0), 1);
    }

    pub fn executed(&mut self) {
        self.add(EXECS.variable, EXECS.index, 1);
    }

    pub fn faulted(&mut self, minor: u64) {
        self.add(MINOR.variable, MINOR.index, minor);
    }

    fn add(&mut self, variable: &'static str, index: usize, amount: u64) {
        let column = self.of.get(&(variable, index));
        if let Some(sum) = column.and_then(|column| self.sums.get_mut(*column)) {
            *sum += amount;
        }
    }
}

/// As `is_flagged` in calls.bpf.c.
fn is_flagged(rule: Rule, arguments: [u64; 6], word: impl Fn(u64) -> u64) -> bool {
    let has = |flags: u64, flag: i32| flags & u64::from(flag.unsigned_abs()) != 0;
    let [first, second, third, fourth, ..] = arguments;
    let of_descriptor = |flags| {
        let [character, ..] = word(second).to_ne_bytes();
        has(flags, libc::AT_EMPTY_PATH) && character == 0
    };
    match rule {
        Rule::Open => has(second, libc::O_CREAT),
        Rule::Openat => has(third, libc::O_CREAT),
        Rule::Openat2 => has(word(third), libc::O_CREAT),
        Rule::Newfstatat => of_descriptor(fourth),
        Rule::Statx => of_descriptor(third),
        Rule::Unlinkat => has(third, libc::AT_REMOVEDIR),
        Rule::Clone => has(first, libc::CLONE_THREAD),
        Rule::Clone3 => has(word(first), libc::CLONE_THREAD),
        Rule::Clock => VDSO_CLOCKS
            .iter()
            .any(|clock| u64::try_from(*clock) == Ok(first)),
        Rule::Reading => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_numbers_decide_on_the_column() {
        let mut counts = Counts::new();
        let creates = u64::try_from(libc::O_CREAT).unwrap();
        let threads = u64::try_from(libc::CLONE_THREAD).unwrap();
        let empty = u64::try_from(libc::AT_EMPTY_PATH).unwrap();
        let cpu_clock = u64::try_from(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap();
        let word = |address| if address == 64 { threads } else { 0 };
        for (call, arguments, name) in [
            (libc::SYS_openat, [0, 0, 0, 0, 0, 0], "calls.open"),
            (libc::SYS_openat, [0, 0, creates, 0, 0, 0], "calls.create"),
            (libc::SYS_newfstatat, [0, 8, 0, empty, 0, 0], "calls.fstat"),
            (libc::SYS_newfstatat, [0, 64, 0, 0, 0, 0], "calls.stat"),
            (libc::SYS_clone3, [64, 0, 0, 0, 0, 0], "calls.thread"),
            (libc::SYS_clone3, [8, 0, 0, 0, 0, 0], "calls.fork"),
            (libc::SYS_clock_gettime, [1, 0, 0, 0, 0, 0], "calls.clock"),
            (
                libc::SYS_clock_gettime,
                [cpu_clock, 0, 0, 0, 0, 0],
                "calls.clock_call",
            ),
            (libc::SYS_gettimeofday, [0; 6], "calls.clock"),
        ] {
            let before = sum(&counts, name);
            counts.entered(usize::try_from(call).ok(), arguments, word);
            assert_eq!(sum(&counts, name), before + 1, "{name}");
        }
        counts.entered(None, [0; 6], word);
        counts.entered(Some(classes::NUMBERS), [0; 6], word);
        assert_eq!(sum(&counts, "calls.other"), 2);
        assert_eq!(sum(&counts, "calls.all"), 11);
        assert_eq!(counts.sums.iter().sum::<u64>(), 2 * 11);
    }

    fn sum(counts: &Counts, name: &str) -> u64 {
        let found = counts.events.iter().position(|event| event.name == name);
        counts.sums[found.unwrap()]
    }
}
