//! The counters of KVM on this host: `vtax-agent counters` and the operation of that name.
//!
//! They come from debugfs; where it is not mounted, from the binary statistics that the kernel
//! gives to whoever holds their descriptor (kernel doc virt/kvm/api.rst, 4.134).

mod binary;
mod debugfs;
mod guests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use vtax_sys::clock;
use vtax_sys::kvm::{self, PagingMode};
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

pub use binary::{BinaryError, Statistic, parse};

/// The values of counters by their names in the kernel; what this kernel lacks is absent.
pub type Values = BTreeMap<String, u64>;

/// The counters of this host at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counters {
    /// `CLOCK_MONOTONIC` when they were read, in seconds.
    pub monotonic_s: f64,
    /// `kvm_amd` or `kvm_intel`; `None` when neither is there.
    pub module: Option<&'static str>,
    /// How guests' addresses are translated; `None` when the module does not say.
    pub mode: Option<PagingMode>,
    /// Where the values come from; `None` when there is neither a guest nor debugfs.
    pub source: Option<CounterSource>,
    /// Sums over the guests that exist now: they drop when a guest ends.
    pub counters: Values,
    /// The names of the counters that are gauges: their differences mean nothing.
    pub gauges: BTreeSet<String>,
    pub guests: Vec<Guest>,
}

/// Where counters come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CounterSource {
    /// `/sys/kernel/debug/kvm`.
    Debugfs,
    /// Descriptors of statistics.
    BinaryStats,
}

/// The counters of one guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guest {
    /// The process that runs it.
    pub pid: i32,
    /// Time that its virtual CPUs spent in the guest, in seconds (resolution 10 ms); `None`: the
    /// kernel does not say.
    pub guest_s: Option<f64>,
    /// The guest's share of the counters.
    pub counters: Values,
}

/// Values and which of them are gauges.
#[derive(Debug, Clone, Default, PartialEq)]
struct Reading {
    values: Values,
    gauges: BTreeSet<String>,
}

impl Reading {
    fn add(&mut self, name: &str, value: u64, gauge: bool) {
        let sum = self.values.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(value);
        if gauge {
            self.gauges.insert(name.to_owned());
        }
    }

    fn extend(&mut self, other: &Self) {
        for (name, value) in &other.values {
            self.add(name, *value, other.gauges.contains(name));
        }
    }
}

/// Read the counters of this host and of its guests.
///
/// Fails, with the remedy, when debugfs is not mounted and the statistics of a running guest cannot
/// be read.
pub fn read(tree: &Tree) -> Result<Counters, Error> {
    let vendor = kvm::vendor(tree);
    let running = guests::running(tree);
    let (source, whole, guests) = if debugfs::mounted(tree) {
        let guests = debugfs::guests(tree);
        (Some(CounterSource::Debugfs), debugfs::host(tree), guests)
    } else if running.is_empty() {
        (None, Reading::default(), BTreeMap::new())
    } else {
        let guests = binary::guests(&running).map_err(|reason| {
            Error::failure(
                "KVM counters",
                reason,
                "mount debugfs on /sys/kernel/debug, as root",
            )
        })?;
        let mut whole = Reading::default();
        for reading in guests.values() {
            whole.extend(reading);
        }
        (Some(CounterSource::BinaryStats), whole, guests)
    };
    Ok(Counters {
        monotonic_s: Duration::from_nanos(clock::monotonic_ns()).as_secs_f64(),
        module: vendor.map(|vendor| vendor.module),
        mode: vendor.and_then(|vendor| kvm::paging_mode(tree, vendor.module, vendor.parameter)),
        source,
        counters: whole.values,
        gauges: whole.gauges,
        guests: guests
            .into_iter()
            .map(|(pid, reading)| Guest {
                pid,
                guest_s: guests::guest_seconds(tree, pid),
                counters: reading.values,
            })
            .collect(),
    })
}

/// Lines for people: the sums and the guests they are over.
pub fn describe(counters: &Counters) -> String {
    let mode = counters.mode.map_or("unknown", PagingMode::name);
    let mut lines = vec![format!(
        "{}, {mode} paging, {} guest(s)",
        counters.module.unwrap_or("no KVM module"),
        counters.guests.len()
    )];
    let width = counters.counters.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in &counters.counters {
        let gauge = if counters.gauges.contains(name) {
            "  (now)"
        } else {
            ""
        };
        lines.push(format!("{name:width$}  {value}{gauge}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn put(root: &Path, path: &str, text: &str, permissions: u32) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(permissions)).unwrap();
    }

    /// Two guests, one of which has two virtual machines.
    fn host() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        put(at, "sys/module/kvm_amd/parameters/npt", "N\n", 0o444);
        for (folder, exits, pages) in [
            ("", 60, 6),
            ("/88-11", 10, 1),
            ("/88-12", 20, 2),
            ("/99-7", 30, 3),
        ] {
            let folder = format!("sys/kernel/debug/kvm{folder}");
            put(at, &format!("{folder}/exits"), &format!("{exits}\n"), 0o644);
            put(
                at,
                &format!("{folder}/pages_4k"),
                &format!("{pages}\n"),
                0o444,
            );
            put(at, &format!("{folder}/halt_wait_hist"), "5\n", 0o644);
            put(at, &format!("{folder}/max_mmu_rmap_size"), "0\n", 0o644);
        }
        put(
            at,
            "sys/kernel/debug/kvm/88-11/vcpu0/tsc-offset",
            "-7\n",
            0o444,
        );
        put(
            at,
            "sys/kernel/debug/kvm/88-11/mmu_rmaps_stat",
            "Rmap_Count:\t0\t1\n",
            0o644,
        );
        let stat = format!("88 (qemu) x) S 1 {} 250 0 9", "0 ".repeat(38));
        put(at, "proc/88/stat", &stat, 0o444);
        root
    }

    #[test]
    fn debugfs_gives_sums_guests_and_gauges() {
        let root = host();
        let counters = read(&Tree::at(root.path())).unwrap();
        assert_eq!(counters.module, Some("kvm_amd"));
        assert_eq!(counters.mode, Some(PagingMode::Shadow));
        assert_eq!(counters.source, Some(CounterSource::Debugfs));
        let values = |exits, pages| {
            let peak = ("max_mmu_rmap_size".into(), 0);
            Values::from([("exits".into(), exits), ("pages_4k".into(), pages), peak])
        };
        assert_eq!(counters.counters, values(60, 6), "no histogram");
        assert_eq!(
            counters.gauges,
            BTreeSet::from(["max_mmu_rmap_size".into(), "pages_4k".into()])
        );
        let expected = [(88, Some(2.5), values(30, 3)), (99, None, values(30, 3))];
        let found: Vec<_> = counters
            .guests
            .into_iter()
            .map(|guest| (guest.pid, guest.guest_s, guest.counters))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn without_kvm_nothing_is_there_and_nothing_is_zero() {
        let root = tempfile::tempdir().unwrap();
        let counters = read(&Tree::at(root.path())).unwrap();
        assert_eq!(
            (counters.module, counters.mode, counters.source),
            (None, None, None)
        );
        assert!(counters.counters.is_empty() && counters.guests.is_empty());
    }

    #[test]
    fn json_has_the_names_of_the_protocol() {
        let counters = read(&Tree::at(host().path())).unwrap();
        let json = serde_json::to_value(&counters).unwrap();
        assert_eq!(
            (&json["mode"], &json["source"]),
            (&"shadow".into(), &"debugfs".into())
        );
        assert_eq!(json["counters"]["exits"], 60);
        assert_eq!(json["guests"][0]["guest_s"], 2.5);
        let text = describe(&counters);
        assert!(
            text.contains("kvm_amd, shadow paging, 2 guest(s)\nexits              60\n"),
            "{text}"
        );
        assert!(text.ends_with("pages_4k           6  (now)"), "{text}");
    }
}
