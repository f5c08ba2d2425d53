//! What this machine's kernel counts, from files that stay open.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use vtax_sys::clock;
use vtax_sys::tree::Tree;

/// The files of `/proc` are read whole. They are far shorter than this, except for the interrupts
/// of machines with thousands of CPUs, whose line is needed only at its beginning.
const MAX_BYTES: usize = 256 << 10;
/// Counters of `/proc/vmstat` that are published, as `guest.NAME`.
const VMSTAT: [&str; 4] = ["pgfault", "pgmajfault", "pswpin", "pswpout"];
/// Fields of the first line of `/proc/stat` (proc(5)), in clock ticks: position and published name.
const TIMES: [(usize, &str); 4] = [
    (0, "guest.user_ns"),
    (2, "guest.system_ns"),
    (3, "guest.idle_ns"),
    (7, "guest.steal_ns"),
];
/// Lines of `/proc/stat` whose first number is a sum.
const SUMS: [(&str, &str); 4] = [
    ("intr", "guest.interrupts"),
    ("ctxt", "guest.context_switches"),
    ("processes", "guest.processes"),
    ("softirq", "guest.softirqs"),
];
/// Numbers of the line `softirq` (include/linux/interrupt.h), after the sum.
const SOFTIRQS: [(usize, &str); 4] = [
    (2, "guest.softirq_timer"),
    (3, "guest.softirq_net_tx"),
    (4, "guest.softirq_net_rx"),
    (5, "guest.softirq_block"),
];
/// Positions in a line `cpuN` of `/proc/schedstat` (kernel documentation scheduler/sched-stats).
const SCHEDSTAT: [(usize, &str); 2] = [(6, "guest.run_ns"), (7, "guest.wait_ns")];

/// The kernel's counters by name; what this kernel does not count is absent.
pub(super) type Values = BTreeMap<String, u64>;

#[derive(Debug)]
pub(super) struct Kernel {
    files: Vec<(File, Parse)>,
    buffer: Vec<u8>,
}

type Parse = fn(&str, &mut Values);

impl Kernel {
    /// Open the files that exist.
    pub(super) fn open(tree: &Tree) -> Self {
        let files: [(&str, Parse); 3] = [
            ("/proc/vmstat", vmstat),
            ("/proc/stat", stat),
            ("/proc/schedstat", schedstat),
        ];
        let files = files
            .into_iter()
            .filter_map(|(path, parse)| Some((File::open(tree.path(path)).ok()?, parse)));
        Self {
            files: files.collect(),
            buffer: vec![0; MAX_BYTES],
        }
    }

    pub(super) fn read(&mut self) -> Values {
        let mut values = Values::new();
        for (file, parse) in &self.files {
            let mut length = 0;
            while let Some(room) = self
                .buffer
                .get_mut(length..)
                .filter(|room| !room.is_empty())
            {
                match file.read_at(room, length as u64) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => length += count,
                }
            }
            let bytes = self.buffer.get(..length).unwrap_or_default();
            parse(&String::from_utf8_lossy(bytes), &mut values);
        }
        values
    }
}

fn vmstat(text: &str, values: &mut Values) {
    for line in text.lines() {
        let Some((name, number)) = line.split_once(' ') else {
            continue;
        };
        if let (true, Ok(number)) = (VMSTAT.contains(&name), number.parse()) {
            values.insert(format!("guest.{name}"), number);
        }
    }
}

fn stat(text: &str, values: &mut Values) {
    let tick_ns = clock::tick_ns();
    for line in text.lines() {
        let (name, numbers) = line.split_once(' ').unwrap_or_default();
        let number = |position: usize| -> Option<u64> {
            numbers.split_whitespace().nth(position)?.parse().ok()
        };
        let mut put = |position, name: &str, factor| {
            if let Some(number) = number(position) {
                values.insert(name.to_owned(), number.saturating_mul(factor));
            }
        };
        if name == "cpu" {
            for (position, name) in TIMES {
                put(position, name, tick_ns);
            }
        }
        if name == "softirq" {
            for (position, name) in SOFTIRQS {
                put(position, name, 1);
            }
        }
        for (_, name) in SUMS.iter().filter(|(line, _)| *line == name) {
            put(0, name, 1);
        }
    }
}

fn schedstat(text: &str, values: &mut Values) {
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map_while(|word| word.parse().ok())
            .collect();
        for (position, name) in SCHEDSTAT {
            if let Some(number) = numbers.get(position) {
                let sum = values.entry(name.to_owned()).or_default();
                *sum = sum.saturating_add(*number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counters_are_named_and_what_is_not_there_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        std::fs::create_dir_all(&proc).unwrap();
        let stat = "cpu  10 1 20 30 4 5 6 7 0 0\ncpu0 10 1 20 30 4 5 6 7 0 0\nintr 99 1 2\n\
                    ctxt 55\nbtime 7\nprocesses 44\nsoftirq 33 1 2 3 4 5 6\n";
        std::fs::write(proc.join("stat"), stat).unwrap();
        std::fs::write(
            proc.join("vmstat"),
            "nr_free_pages 1\npgfault 8\npswpin 0\n",
        )
        .unwrap();
        let schedstat = "version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 100 10 1\n\
                         domain0 3 1 1\ncpu1 0 0 0 0 0 0 200 20 2\n";
        std::fs::write(proc.join("schedstat"), schedstat).unwrap();
        let mut kernel = Kernel::open(&Tree::at(root.path()));
        let values = kernel.read();
        let value = |name| values.get(name).copied();
        for (name, expected) in [
            ("guest.pgfault", Some(8)),
            ("guest.pswpin", Some(0)),
            ("guest.pswpout", None),
            ("guest.user_ns", Some(10 * clock::tick_ns())),
            ("guest.steal_ns", Some(7 * clock::tick_ns())),
            ("guest.interrupts", Some(99)),
            ("guest.context_switches", Some(55)),
            ("guest.processes", Some(44)),
            ("guest.softirqs", Some(33)),
            ("guest.softirq_timer", Some(2)),
            ("guest.softirq_net_rx", Some(4)),
            ("guest.run_ns", Some(300)),
            ("guest.wait_ns", Some(30)),
        ] {
            assert_eq!(value(name), expected, "{name}");
        }
        // Each read opens the files again.
        std::fs::write(proc.join("vmstat"), "pgfault 9\n").unwrap();
        assert_eq!(kernel.read().get("guest.pgfault"), Some(&9));
    }

    #[test]
    fn this_machine_counts() {
        let mut kernel = Kernel::open(&Tree::host());
        let (first, later) = (kernel.read(), kernel.read());
        assert!(first["guest.context_switches"] > 0);
        assert!(first.iter().all(|(name, value)| later[name] >= *value));
        assert!(first.keys().all(|name| vtax_sys::guest_page::is_name(name)));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(cpu|cpu0|intr|softirq|pgfault|[0-9 \n]{0,9}){0,40}") {
            let mut values = Values::new();
            for parse in [vmstat, stat, schedstat] {
                parse(&text, &mut values);
            }
        }
    }
}
