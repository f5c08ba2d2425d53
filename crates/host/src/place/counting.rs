//! Wakeups and softirq time, counted by eBPF.

use std::fs;
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel};
use vtax_sys::tree::Tree;

use crate::place::cpus;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/place.bpf.o"));
/// The first PID namespace (`include/linux/proc_ns.h`, `PROC_PID_INIT_INO`): eBPF sees process
/// numbers of this namespace.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The counts of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the thread was woken.
    pub wakeups: u64,
    /// Time of softirqs that ran in the thread's context.
    pub softirq_ns: u64,
}

/// Counts threads and CPUs, until it is dropped.
#[derive(Debug)]
pub struct Counting {
    object: Object,
    #[expect(dead_code, reason = "held for its effect")]
    links: Vec<Link>,
}

impl Counting {
    /// Count these threads, starting at 0.
    ///
    /// Fails with the reason, one line, where this process is not allowed to count or the kernel
    /// cannot.
    pub fn begin(tree: &Tree, threads: &[i32]) -> Result<Self, String> {
        let namespace = fs::metadata(tree.path("/proc/self/ns/pid"));
        if namespace.is_ok_and(|found| found.ino() != FIRST_NAMESPACE) {
            return Err("this is not the first PID namespace, whose numbers eBPF sees".into());
        }
        load(tree, threads).map_err(|error| format!("eBPF: {error}"))
    }

    /// The counts of a thread that was named at the start.
    pub fn thread(&self, tid: i32) -> Option<Counts> {
        let [wakeups, softirq_ns] = self.words("threads", tid.cast_unsigned())?;
        Some(Counts {
            wakeups,
            softirq_ns,
        })
    }

    /// Softirq time of a CPU, in nanoseconds.
    pub fn cpu(&self, cpu: usize) -> Option<u64> {
        let [softirq_ns, _] = self.words("cpus", u32::try_from(cpu).ok()?)?;
        Some(softirq_ns)
    }

    /// The first two words of an entry.
    fn words(&self, map: &str, key: u32) -> Option<[u64; 2]> {
        let map = self.object.maps().find(|known| known.name() == map)?;
        let value = map.lookup(&key.to_ne_bytes(), MapFlags::ANY).ok()??;
        let (words, _) = value.as_chunks::<8>();
        Some([
            u64::from_ne_bytes(*words.first()?),
            u64::from_ne_bytes(*words.get(1)?),
        ])
    }
}

fn load(tree: &Tree, threads: &[i32]) -> Result<Counting, libbpf_rs::Error> {
    // The error has the reason of a failure; libbpf's own words are many lines.
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| {})));
    let mut builder = ObjectBuilder::default();
    let mut open = builder.name("vtax_place")?.open_memory(OBJECT)?;
    let most = cpus::present(tree).last().map_or(1, |last| last + 1);
    let entries = |count: usize| u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    for mut map in open.maps_mut() {
        match map.name().to_str() {
            Some("threads") => map.set_max_entries(entries(threads.len()))?,
            Some("cpus") => map.set_max_entries(entries(most))?,
            _ => {}
        }
    }
    let object = open.load()?;
    if let Some(map) = object.maps().find(|map| map.name() == "threads") {
        for tid in threads {
            map.update(&tid.to_ne_bytes(), &[0; 16], MapFlags::ANY)?;
        }
    }
    let links = object.progs_mut().map(|program| program.attach_trace());
    let links = links.collect::<Result<_, _>>()?;
    Ok(Counting { object, links })
}
