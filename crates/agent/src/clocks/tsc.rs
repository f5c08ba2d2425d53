//! The time stamp counter: what the kernel and the processor say of it, and how fast it runs.

use serde::Serialize;

use crate::clocks::moment::Moment;
use crate::clocks::reasons::{Reasons, keep};
use crate::facts::{Facts, Probe};

const CRYSTAL_LEAF: u32 = 0x15;
const FREQUENCY_LEAF: u32 = 0x16;
const HYPERVISOR_LEAF: u32 = 0x4000_0000;
/// The leaf of KVM and others in which EAX is the counter's frequency in kHz.
const HYPERVISOR_FREQUENCY_LEAF: u32 = 0x4000_0010;
const KHZ: u64 = 1_000;
const MHZ: u64 = 1_000_000;

/// What is known of the counter; `None` with a reason where nothing is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tsc {
    /// It keeps its rate when the processor changes its own (`constant_tsc`).
    pub constant: Option<bool>,
    /// It keeps running when the processor sleeps (`nonstop_tsc`).
    pub nonstop: Option<bool>,
    /// The kernel was told its rate and did not have to measure it (`tsc_known_freq`).
    pub known_frequency: Option<bool>,
    /// The kernel does not watch it with another clock (`tsc_reliable`).
    pub reliable: Option<bool>,
    /// The processor has RDTSCP.
    pub rdtscp: Option<bool>,
    /// Its rate by CPUID leaf 0x15.
    pub crystal_leaf_hz: Option<u64>,
    /// The processor's base rate by CPUID leaf 0x16, which is not exactly the counter's.
    pub base_leaf_hz: Option<u64>,
    /// Its rate by CPUID leaf 0x40000010.
    pub hypervisor_leaf_hz: Option<u64>,
    /// Its rate by a separate register (`CNTFRQ_EL0`), which only arm64 has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register_hz: Option<u64>,
    /// Ticks per second of `CLOCK_MONOTONIC_RAW`, over the whole measurement.
    pub measured_hz: Option<f64>,
    /// Why a field is `None`.
    pub reasons: Reasons,
}

/// Describe this machine's counter; `begin` and `end` are moments as far apart as possible.
pub fn read(facts: &Facts, probe: &dyn Probe, begin: Moment, end: Moment) -> Tsc {
    let mut reasons = Reasons::new();
    let register_hz = probe.counter_register_hz();
    let mut flag = |field, name| {
        let known = match register_hz {
            Some(_) => by_architecture(name),
            None => has_flag(&facts.cpu.flags, name),
        };
        keep(&mut reasons, field, known)
    };
    let (constant, nonstop) = (
        flag("constant", "constant_tsc"),
        flag("nonstop", "nonstop_tsc"),
    );
    let known_frequency = flag("known_frequency", "tsc_known_freq");
    let reliable = flag("reliable", "tsc_reliable");
    let rdtscp = flag("rdtscp", "rdtscp");
    let leaves = Leaves::of(facts, probe);
    Tsc {
        constant,
        nonstop,
        known_frequency,
        reliable,
        rdtscp,
        crystal_leaf_hz: keep(&mut reasons, "crystal_leaf_hz", leaves.crystal_hz()),
        base_leaf_hz: keep(&mut reasons, "base_leaf_hz", leaves.base_hz()),
        hypervisor_leaf_hz: keep(&mut reasons, "hypervisor_leaf_hz", leaves.hypervisor_hz()),
        register_hz,
        measured_hz: keep(&mut reasons, "measured_hz", begin.rate_hz(end)),
        reasons,
    }
}

fn has_flag(flags: &[String], name: &str) -> Result<bool, &'static str> {
    if flags.is_empty() {
        return Err("/proc/cpuinfo shows no flags");
    }
    Ok(flags.iter().any(|flag| flag == name))
}

/// The answer for a counter with a register for its rate instead of flags: Arm's generic timer has
/// one rate, is always on, and tells its rate.
fn by_architecture(name: &str) -> Result<bool, &'static str> {
    match name {
        "constant_tsc" | "nonstop_tsc" | "tsc_known_freq" => Ok(true),
        "rdtscp" => Ok(false),
        _ => Err("the kernel has no such flag on this architecture"),
    }
}

/// The CPUID leaves that may be read.
struct Leaves<'a> {
    probe: &'a dyn Probe,
    /// `Err`: CPUID would answer for another machine.
    is_own: Result<(), String>,
    /// Is there a hypervisor with its own leaves?
    hypervisor: bool,
}

impl<'a> Leaves<'a> {
    fn of(facts: &Facts, probe: &'a dyn Probe) -> Self {
        let kind = facts.virtualization.kind;
        let is_own = match kind {
            "uml" | "gvisor" => Err(format!("CPUID is not trapped in {kind}: it is the host's")),
            _ => Ok(()),
        };
        Self {
            probe,
            is_own,
            hypervisor: facts.virtualization.leaf.is_some(),
        }
    }

    /// A leaf's registers, where the leaves from `first` on reach that far.
    fn get(&self, first: u32, leaf: u32) -> Result<[u32; 4], String> {
        self.is_own.clone()?;
        let none = "this architecture has no CPUID";
        let [last, ..] = self.probe.cpuid(first).ok_or(none)?;
        if last < leaf {
            return Err(format!("CPUID leaves end at {last:#x}"));
        }
        Ok(self.probe.cpuid(leaf).ok_or(none)?)
    }

    /// The crystal's frequency times EBX over EAX (Intel SDM, volume 2, CPUID).
    fn crystal_hz(&self) -> Result<u64, String> {
        let [denominator, numerator, crystal, _] = self.get(0, CRYSTAL_LEAF)?.map(u64::from);
        let rate = (crystal * numerator).checked_div(denominator);
        rate.filter(|rate| *rate > 0)
            .ok_or_else(|| format!("CPUID leaf {CRYSTAL_LEAF:#x} leaves the crystal's rate out"))
    }

    fn base_hz(&self) -> Result<u64, String> {
        let [base_mhz, ..] = self.get(0, FREQUENCY_LEAF)?;
        told(base_mhz & 0xffff, FREQUENCY_LEAF).map(|base| base * MHZ)
    }

    fn hypervisor_hz(&self) -> Result<u64, String> {
        self.is_own.clone()?;
        if !self.hypervisor {
            return Err("no hypervisor shows itself in CPUID".into());
        }
        let [tsc_khz, ..] = self.get(HYPERVISOR_LEAF, HYPERVISOR_FREQUENCY_LEAF)?;
        told(tsc_khz, HYPERVISOR_FREQUENCY_LEAF).map(|rate| rate * KHZ)
    }
}

fn told(number: u32, leaf: u32) -> Result<u64, String> {
    match number {
        0 => Err(format!("CPUID leaf {leaf:#x} is empty")),
        number => Ok(u64::from(number)),
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use vtax_sys::tree::Tree;

    use super::*;
    use crate::clocks::timing::Timing;
    use crate::facts::gather_with;

    /// CPUID leaves and their registers; all others are zero.
    struct Fake(Vec<(u32, [u32; 4])>);

    impl Probe for Fake {
        fn cpuid(&self, leaf: u32) -> Option<[u32; 4]> {
            let found = self.0.iter().find(|(known, _)| *known == leaf);
            Some(found.map_or([0; 4], |(_, registers)| *registers))
        }

        fn counter_register_hz(&self) -> Option<u64> {
            None
        }

        fn instruction_counter(&self) -> Result<(), Errno> {
            Err(Errno::ENOENT)
        }

        fn machine(&self) -> Option<String> {
            None
        }

        fn timing(&self) -> Timing {
            Timing::default()
        }
    }

    fn tsc(leaves: Vec<(u32, [u32; 4])>, cpuinfo: &str) -> Tsc {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        let probe = Fake(leaves);
        let facts = gather_with(&Tree::at(root.path()), &probe);
        let at = |ticks, clock_ns| Moment {
            ticks,
            clock_ns: Some(clock_ns),
        };
        read(&facts, &probe, at(1_000, 0), at(7_001_000, 2_000_000))
    }

    #[test]
    fn leaves_are_read_where_they_are() {
        let word = u32::from_le_bytes;
        let kvm = [
            HYPERVISOR_FREQUENCY_LEAF,
            word(*b"KVMK"),
            word(*b"VMKV"),
            word(*b"M\0\0\0"),
        ];
        let tsc = tsc(
            vec![
                (0, [0x16, 0, 0, 0]),
                (1, [0, 0, 1 << 31, 0]),
                (CRYSTAL_LEAF, [2, 188, 25_000_000, 0]),
                (FREQUENCY_LEAF, [2_400, 4_000, 100, 0]),
                (HYPERVISOR_LEAF, kvm),
                (HYPERVISOR_FREQUENCY_LEAF, [2_350_000, 1_000_000, 0, 0]),
            ],
            "flags\t\t: tsc constant_tsc rdtscp\n",
        );
        assert_eq!(tsc.crystal_leaf_hz, Some(2_350_000_000));
        assert_eq!(tsc.base_leaf_hz, Some(2_400_000_000));
        assert_eq!(tsc.hypervisor_leaf_hz, Some(2_350_000_000));
        assert_eq!(tsc.measured_hz, Some(3.5e9));
        assert_eq!(
            (tsc.constant, tsc.nonstop, tsc.rdtscp),
            (Some(true), Some(false), Some(true))
        );
        assert!(tsc.reasons.is_empty());
    }

    #[test]
    fn what_the_processor_does_not_say_has_a_reason() {
        let tsc = tsc(
            vec![(0, [0x15, 0, 0, 0]), (CRYSTAL_LEAF, [2, 188, 0, 0])],
            "",
        );
        assert_eq!(
            tsc.reasons["crystal_leaf_hz"],
            "CPUID leaf 0x15 leaves the crystal's rate out"
        );
        assert_eq!(tsc.reasons["base_leaf_hz"], "CPUID leaves end at 0x15");
        assert_eq!(
            tsc.reasons["hypervisor_leaf_hz"],
            "no hypervisor shows itself in CPUID"
        );
        assert_eq!(tsc.constant, None);
        assert_eq!(tsc.reasons["constant"], "/proc/cpuinfo shows no flags");
    }

    #[test]
    fn the_leaves_of_the_host_are_not_a_guests() {
        let leaves = vec![(0, [0x16, 0, 0, 0]), (FREQUENCY_LEAF, [2_400, 0, 0, 0])];
        let tsc = tsc(leaves, "vendor_id\t: User Mode Linux\n");
        assert_eq!(tsc.base_leaf_hz, None);
        assert!(tsc.reasons["base_leaf_hz"].contains("the host's"));
    }
}
