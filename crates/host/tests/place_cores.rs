//! Kinds of cores, on machines with a made-up `/sys`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::ops::Range;

use vtax_host::place::cores::Cores;
use vtax_sys::tree::Tree;

/// A made-up `/sys`.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(online: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("sys/devices/system/cpu/online", online)
    }

    fn write(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn each(mut self, file: &str, cpus: Range<usize>, text: impl ToString) -> Self {
        for cpu in cpus {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/{file}");
            self = self.write(&path, &text.to_string());
        }
        self
    }

    fn pairs(mut self, cpus: Range<usize>) -> Self {
        for first in cpus.step_by(2) {
            let list = format!("{first}-{}", first + 1);
            self = self.each("topology/thread_siblings_list", first..first + 2, list);
        }
        self
    }

    fn cores(&self) -> Cores {
        Cores::of(&Tree::at(self.0.path()))
    }

    fn kinds(&self) -> Vec<(String, String)> {
        let json = serde_json::to_value(self.cores()).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let kinds = json["kinds"].as_array().unwrap().iter();
        kinds
            .map(|kind| (text(&kind["name"]), text(&kind["cpus"])))
            .collect()
    }
}

fn named(kinds: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, cpus): &(&str, &str)| ((*name).to_owned(), (*cpus).to_owned());
    kinds.iter().map(owned).collect()
}

#[test]
fn favoured_cores_are_no_kind_of_their_own() {
    let machine = Machine::new("0-31")
        .each("cpu_capacity", 0..16, 971)
        .each("cpu_capacity", 8..12, 1024)
        .each("cpu_capacity", 16..32, 617);
    assert_eq!(
        machine.kinds(),
        named(&[("fast", "0-15"), ("slow", "16-31")])
    );
    let cores = machine.cores();
    assert_eq!(cores.kinds[0].favoured, [8, 9, 10, 11]);
    let speed = cores.kinds[1].speed_percent.unwrap();
    assert!((speed - 100.0 * 617.0 / 971.0).abs() < 1e-9);
    assert_eq!(cores.source.as_deref(), Some("by cpu_capacity"));
}

#[test]
fn two_kinds_of_amd() {
    let machine = Machine::new("0-11")
        .each("acpi_cppc/highest_perf", 0..4, 236)
        .each("acpi_cppc/highest_perf", 4..12, 176);
    assert_eq!(machine.kinds(), named(&[("fast", "0-3"), ("slow", "4-11")]));
    // Rankings within a kind: a laptop's, as amd-debug-tools shows them
    // (nixpkgs, pull request 436966).
    let mut machine = Machine::new("0-7");
    for (cpu, rank) in [226, 232, 232, 214, 214, 202, 202, 220].iter().enumerate() {
        machine = machine.each("acpi_cppc/highest_perf", cpu..cpu + 1, rank);
    }
    assert_eq!(machine.kinds(), named(&[("fast", "0-7")]));
    assert_eq!(machine.cores().source, None);
}

#[test]
fn three_kinds_of_arm_and_an_order_by_numbers() {
    let machine = Machine::new("0-7")
        .each("regs/identification/midr_el1", 0..4, "0x00000000411fd050")
        .each("regs/identification/midr_el1", 4..7, "0x00000000412fd410")
        .each("regs/identification/midr_el1", 7..8, "0x00000000411fd440")
        .each("cpu_capacity", 0..4, 326)
        .each("cpu_capacity", 4..7, 900)
        .each("cpu_capacity", 7..8, 1024);
    let three = named(&[("fast", "7"), ("medium", "4-6"), ("slow", "0-3")]);
    assert_eq!(machine.kinds(), three);
    // Two variants of a part, by clocks (Snapdragon 8 Elite).
    let machine = Machine::new("0-7")
        .each("regs/identification/midr_el1", 0..6, "0x00000000513f0014")
        .each("regs/identification/midr_el1", 6..8, "0x00000000514f0014")
        .each("cpufreq/cpuinfo_max_freq", 0..6, 3_532_800)
        .each("cpufreq/cpuinfo_max_freq", 6..8, 4_320_000);
    assert_eq!(machine.kinds(), named(&[("fast", "6-7"), ("slow", "0-5")]));
    // The same parts, with nothing that says which are faster.
    let machine = Machine::new("0-1")
        .each("regs/identification/midr_el1", 0..1, "0x00000000411fd050")
        .each("regs/identification/midr_el1", 1..2, "0x00000000412fd410");
    assert_eq!(machine.kinds(), named(&[("fast", "0-1")]));
    assert!(machine.cores().notes[0].contains("nothing says which are faster"));
}

/// Meteor Lake: siblings, and two low-power atoms without a third-level cache.
#[test]
fn three_kinds_of_hybrid_x86() {
    let machine = Machine::new("0-21")
        .write("sys/devices/cpu_core/cpus", "0-11")
        .write("sys/devices/cpu_atom/cpus", "12-21")
        .pairs(0..12)
        .each("cache/index2/level", 0..22, 2)
        .each("cache/index3/level", 0..20, 3)
        .each("acpi_cppc/highest_perf", 0..22, 255)
        .each("cpufreq/cpuinfo_max_freq", 0..12, 4_800_000)
        .each("cpufreq/cpuinfo_max_freq", 12..20, 3_800_000)
        .each("cpufreq/cpuinfo_max_freq", 20..22, 2_500_000);
    let three = named(&[("fast", "0-11"), ("medium", "12-19"), ("slow", "20-21")]);
    assert_eq!(machine.kinds(), three);
    let cores = machine.cores();
    assert_eq!(cores.kinds[0].cores, 6);
    assert!((cores.kinds[0].worth - 6.9).abs() < 1e-9);
    assert_eq!(cores.siblings.len(), 6);
    let source = cores.source.unwrap();
    assert!(source.contains("a clock alone"), "{source}");
    assert_eq!(
        cores.notes,
        ["acpi_cppc/highest_perf shows one kind of cores only"]
    );
}

#[test]
fn what_is_isolated_or_off_is_not_planned() {
    let machine = Machine::new("0-5")
        .write("sys/devices/system/cpu/isolated", "1,4-5,9")
        .each("cpu_capacity", 0..4, 1024)
        .each("cpu_capacity", 4..8, 400);
    // All slow CPUs are isolated: then there is one kind.
    assert_eq!(machine.kinds(), named(&[("fast", "0,2-3")]));
    assert_eq!(machine.cores().isolated, [1, 4, 5]);
    let none = Machine::new("0-1").write("sys/devices/system/cpu/isolated", "");
    assert_eq!(none.cores().isolated, [0_usize; 0]);
}

#[test]
fn a_missing_number_is_found_elsewhere_or_said() {
    let machine = || {
        Machine::new("0-7")
            .each("cpu_capacity", 0..4, 1024)
            .each("cpu_capacity", 4..8, 400)
            .each("cpu_capacity", 5..6, 0)
    };
    let alone = machine().cores();
    assert_eq!(alone.unknown, [5]);
    assert!(
        alone.notes[0].starts_with("CPU 5: its kind is unknown"),
        "{:?}",
        alone.notes
    );
    let both = named(&[("fast", "0-3"), ("slow", "4-7")]);
    let sibling = machine().pairs(4..6);
    assert_eq!(sibling.kinds(), both);
    let cluster = machine().each("topology/cluster_cpus_list", 5..6, "4-7");
    assert_eq!(cluster.kinds(), both);
    let clock = machine()
        .each("cpufreq/cpuinfo_max_freq", 0..4, 2_800_000)
        .each("cpufreq/cpuinfo_max_freq", 4..8, 1_800_000);
    assert_eq!(clock.kinds(), both);
}

#[test]
fn sources_that_disagree_are_said() {
    let machine = Machine::new("0-3")
        .each("cpu_capacity", 0..2, 1024)
        .each("cpu_capacity", 2..4, 500)
        .each("cpufreq/cpuinfo_max_freq", 0..1, 4_000_000)
        .each("cpufreq/cpuinfo_max_freq", 1..4, 2_000_000);
    assert_eq!(machine.kinds(), named(&[("fast", "0-1"), ("slow", "2-3")]));
    let said = "cpufreq/cpuinfo_max_freq shows other kinds: 0 | 1-3";
    assert_eq!(machine.cores().notes, [said]);
    let types = Machine::new("0-3")
        .write("sys/devices/cpu_core/cpus", "0-1")
        .write("sys/devices/cpu_atom/cpus", "2-3")
        .each("acpi_cppc/highest_perf", 0..2, 40)
        .each("acpi_cppc/highest_perf", 2..4, 60);
    assert_eq!(types.kinds(), named(&[("fast", "0-1"), ("slow", "2-3")]));
    let cores = types.cores();
    assert_eq!(cores.kinds[1].speed_percent, None);
    assert!(
        cores.notes[0].contains("slower type, and faster by"),
        "{:?}",
        cores.notes
    );
}

#[test]
fn a_machine_that_says_nothing_is_alike() {
    let machine = Machine::new("0-3");
    assert_eq!(machine.kinds(), named(&[("fast", "0-3")]));
    let odd = Machine::new("0-3")
        .each("cpu_capacity", 0..1, u32::MAX)
        .each("cpu_capacity", 1..4, 1);
    assert_eq!(odd.kinds(), named(&[("fast", "0-3")]));
    let nothing = Cores::of(&Tree::at("/nonexistent"));
    assert!(nothing.kinds.is_empty() && nothing.notes.is_empty());
}
