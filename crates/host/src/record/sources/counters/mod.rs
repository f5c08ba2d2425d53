//! Counters that the overflow program reads: hardware, software, steal time.

pub mod grouping;
pub mod named;

use perf_event_open_sys::bindings as perf;

use crate::record::perf::{Exclude, Request};

use super::{Event, EventSource, Need, Origin, Unit};

/// Generic hardware events, in total and by level.
pub const HARDWARE: EventSource = EventSource {
    name: "hw",
    about: "instructions, cycles, branches, caches, TLBs, raw codes (hw.raw.0x08), PMUs' own names; \
            with .user, .kernel, .guest, .host",
    needs: &[Need::Ebpf, Need::Pmu],
    events: hardware,
};

/// perf's software events.
pub const SOFTWARE: EventSource = EventSource {
    name: "sw",
    about: "page faults, context switches, task clock, as perf's software counters",
    needs: &[Need::Ebpf],
    events: software,
};

/// Time that the hypervisor gave to others.
pub const STEAL: EventSource = EventSource {
    name: "steal",
    about: "time that the hypervisor gave to others",
    needs: &[Need::Ebpf, Need::StealClock],
    events: steal,
};

/// Generic hardware events; the flag says which are recorded by default.
const GENERIC: [(&str, u32, &str, bool); 7] = [
    (
        "instructions",
        perf::PERF_COUNT_HW_INSTRUCTIONS,
        "retired instructions",
        true,
    ),
    (
        "cycles",
        perf::PERF_COUNT_HW_CPU_CYCLES,
        "core cycles",
        true,
    ),
    (
        "cache_references",
        perf::PERF_COUNT_HW_CACHE_REFERENCES,
        "last-level cache accesses",
        false,
    ),
    (
        "cache_misses",
        perf::PERF_COUNT_HW_CACHE_MISSES,
        "last-level cache misses",
        true,
    ),
    (
        "branches",
        perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
        "retired branches",
        false,
    ),
    (
        "branch_misses",
        perf::PERF_COUNT_HW_BRANCH_MISSES,
        "mispredicted branches",
        true,
    ),
    (
        "ref_cycles",
        perf::PERF_COUNT_HW_REF_CPU_CYCLES,
        "cycles of the reference clock",
        false,
    ),
];

/// Cache events: which cache, which operation, accesses (0) or misses (1).
const CACHE: [(&str, u32, u32, u32, &str, bool); 6] = [
    (
        "dtlb_load_misses",
        perf::PERF_COUNT_HW_CACHE_DTLB,
        0,
        1,
        "dTLB misses of loads",
        true,
    ),
    (
        "dtlb_store_misses",
        perf::PERF_COUNT_HW_CACHE_DTLB,
        1,
        1,
        "dTLB misses of stores",
        false,
    ),
    (
        "itlb_misses",
        perf::PERF_COUNT_HW_CACHE_ITLB,
        0,
        1,
        "iTLB misses",
        false,
    ),
    (
        "l1d_loads",
        perf::PERF_COUNT_HW_CACHE_L1D,
        0,
        0,
        "loads",
        false,
    ),
    (
        "l1d_load_misses",
        perf::PERF_COUNT_HW_CACHE_L1D,
        0,
        1,
        "L1 data cache misses of loads",
        false,
    ),
    (
        "l1d_stores",
        perf::PERF_COUNT_HW_CACHE_L1D,
        1,
        0,
        "stores",
        false,
    ),
];

/// perf's software events.
const OF_PERF: [(&str, u32, Unit, &str); 8] = [
    (
        "cpu_clock",
        perf::PERF_COUNT_SW_CPU_CLOCK,
        Unit::Ns,
        "time of the CPU",
    ),
    (
        "task_clock",
        perf::PERF_COUNT_SW_TASK_CLOCK,
        Unit::Ns,
        "time of tasks on the CPU",
    ),
    (
        "page_faults",
        perf::PERF_COUNT_SW_PAGE_FAULTS,
        Unit::Count,
        "page faults",
    ),
    (
        "minor_faults",
        perf::PERF_COUNT_SW_PAGE_FAULTS_MIN,
        Unit::Count,
        "page faults without I/O",
    ),
    (
        "major_faults",
        perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        Unit::Count,
        "page faults with I/O",
    ),
    (
        "context_switches",
        perf::PERF_COUNT_SW_CONTEXT_SWITCHES,
        Unit::Count,
        "context switches",
    ),
    (
        "migrations",
        perf::PERF_COUNT_SW_CPU_MIGRATIONS,
        Unit::Count,
        "tasks that came to the CPU",
    ),
    (
        "emulation_faults",
        perf::PERF_COUNT_SW_EMULATION_FAULTS,
        Unit::Count,
        "instructions emulated",
    ),
];

/// Parts of a hardware event: the name, and the levels that are left out.
const PARTS: [(&str, Exclude); 5] = [
    (
        "",
        Exclude {
            user: false,
            kernel: false,
            host: false,
            guest: false,
        },
    ),
    (
        ".user",
        Exclude {
            user: false,
            kernel: true,
            host: false,
            guest: false,
        },
    ),
    (
        ".kernel",
        Exclude {
            user: true,
            kernel: false,
            host: false,
            guest: false,
        },
    ),
    (
        ".guest",
        Exclude {
            user: false,
            kernel: false,
            host: true,
            guest: false,
        },
    ),
    (
        ".host",
        Exclude {
            user: false,
            kernel: false,
            host: false,
            guest: true,
        },
    ),
];

fn hardware() -> Vec<Event> {
    let generic = GENERIC.iter().map(|(name, config, about, default)| {
        (
            *name,
            perf::PERF_TYPE_HARDWARE,
            u64::from(*config),
            *about,
            *default,
        )
    });
    let caches = CACHE
        .iter()
        .map(|(name, cache, operation, result, about, default)| {
            // perf_event_open(2), PERF_TYPE_HW_CACHE.
            let config = u64::from(cache | operation << 8 | result << 16);
            (*name, perf::PERF_TYPE_HW_CACHE, config, *about, *default)
        });
    generic
        .chain(caches)
        .flat_map(|(name, kind, config, about, default)| {
            let request = Request {
                kind,
                config,
                ..Request::default()
            };
            parts(name, about, request, default)
        })
        .collect()
}

/// A hardware event and its parts; `default`: the whole is recorded by default.
fn parts(name: &str, about: &str, request: Request, default: bool) -> impl Iterator<Item = Event> {
    PARTS.iter().map(move |(part, exclude)| Event {
        name: format!("hw.{name}{part}"),
        about: match part.strip_prefix('.') {
            None => about.to_owned(),
            Some(part) => format!("{about}, {part} only"),
        },
        unit: Unit::Count,
        default: default && part.is_empty(),
        origin: Origin::Perf(Request {
            exclude: *exclude,
            ..request
        }),
    })
}

fn software() -> Vec<Event> {
    OF_PERF
        .iter()
        .map(|(name, config, unit, about)| Event {
            name: format!("sw.{name}"),
            about: (*about).into(),
            unit: *unit,
            default: false,
            origin: Origin::Perf(Request {
                kind: perf::PERF_TYPE_SOFTWARE,
                config: u64::from(*config),
                ..Request::default()
            }),
        })
        .collect()
}

fn steal() -> Vec<Event> {
    vec![Event {
        name: "steal.time".into(),
        about: "time stolen by the hypervisor, brought up to date at each tick".into(),
        unit: Unit::Ns,
        default: true,
        origin: Origin::Steal,
    }]
}
