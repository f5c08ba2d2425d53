//! PMUs by description: their counters, and which of them each generic event can use.
//!
//! The rules are those of Linux 6.12, which decide what `perf_event_open` accepts:
//! `arch/x86/events/intel/core.c` (`intel_skl_event_constraints`, `intel_icl_event_constraints`,
//! `skl_hw_cache_event_ids`, and `intel_pmu_init`, which lets an event with a fixed counter use the
//! general ones too, except for the reference cycles), `arch/x86/events/amd/core.c` (the core's six
//! counters, any event on each) and `drivers/perf/arm_pmuv3.c` (`armv8pmu_get_event_idx`: cycles
//! try the cycle counter first).

use std::collections::HashMap;

use nix::errno::Errno;
use vtax_host::record::perf::Request;
use vtax_host::record::sources::counters::grouping::Pmu;
use vtax_host::record::sources::{self, Origin};

/// One bit for each counter: the general ones from 0 on, the fixed ones from `FIXED` on.
type Counters = u16;

const FIXED: u32 = 8;
const FIXED_0: Counters = 1 << FIXED;
const FIXED_1: Counters = 2 << FIXED;
const FIXED_2: Counters = 4 << FIXED;

pub struct Description {
    pub name: &'static str,
    /// The counters that any event of the PMU can use, unless it is in `events`.
    pub general: Counters,
    /// Events with other counters; no bit: the PMU cannot count the event.
    pub events: &'static [(&'static str, Counters)],
}

/// A core with both threads running: four general counters, three fixed.
pub const SKYLAKE: Description = Description {
    name: "Skylake",
    general: 0xf,
    events: &[
        ("instructions", FIXED_0 | 0xf),
        ("cycles", FIXED_1 | 0xf),
        ("ref_cycles", FIXED_2),
    ],
};

/// Eight general and four fixed counters; the fourth fixed counter counts only slots, which no
/// generic event does. Events of codes 03-0a, 48-56, 60-8b and d0-e6 can use the first four.
pub const ICE_LAKE: Description = Description {
    name: "Ice Lake",
    general: 0xff,
    events: &[
        ("instructions", FIXED_0 | 0xff),
        ("cycles", FIXED_1 | 0xff),
        ("ref_cycles", FIXED_2),
        ("dtlb_load_misses", 0xf),  // 0x08
        ("dtlb_store_misses", 0xf), // 0x49
        ("itlb_misses", 0xf),       // 0x85
        ("l1d_loads", 0xf),         // 0xd0
        ("l1d_load_misses", 0xf),   // 0x51
        ("l1d_stores", 0xf),        // 0xd0
    ],
};

pub const ZEN_3: Description = Description {
    name: "Zen 3",
    general: 0x3f,
    events: &[
        ("ref_cycles", 0),
        ("dtlb_store_misses", 0),
        ("l1d_stores", 0),
    ],
};

pub const ZEN_4: Description = Description {
    name: "Zen 4",
    general: 0x3f,
    events: &[("dtlb_store_misses", 0), ("l1d_stores", 0)],
};

/// `PMUv3` with six general counters, as in Cortex-A76 and Neoverse-N1.
pub const ARM: Description = Description {
    name: "Neoverse-N1",
    general: 0x3f,
    events: &[
        ("cycles", FIXED_0 | 0x3f),
        ("ref_cycles", 0),
        ("dtlb_store_misses", 0),
        ("l1d_stores", 0),
    ],
};

pub const ALL: [&Description; 5] = [&SKYLAKE, &ICE_LAKE, &ZEN_3, &ZEN_4, &ARM];

impl Description {
    /// The counters that an event can use, by its name without `hw.`; a part of an event has the
    /// counters of the whole.
    fn counters(&self, event: &str) -> Counters {
        let whole = event.split('.').next().unwrap_or_default();
        let mut special = self.events.iter();
        let found = special.find(|(name, _)| *name == whole);
        found.map_or(self.general, |(_, counters)| *counters)
    }

    /// Can the PMU count this event at all?
    pub fn has(&self, event: &str) -> bool {
        self.counters(event) != 0
    }

    /// Can each of the events have a counter at the same time? Found as a matching, by changes
    /// along a path.
    pub fn schedules(&self, events: &[&str]) -> bool {
        let wants: Vec<Counters> = events.iter().map(|event| self.counters(event)).collect();
        let mut owner = HashMap::new();
        (0..wants.len()).all(|event| assign(event, &wants, &mut 0, &mut owner))
    }

    /// The fewest groups of at most `limit` that hold all events; only for a few events.
    pub fn fewest(&self, events: &[&str], beside: &[&str], limit: usize) -> usize {
        let sets = 1_usize << events.len();
        let members = |set: usize| (0..events.len()).filter(move |event| set >> event & 1 == 1);
        let fits = |set: usize| {
            let group = members(set).filter_map(|event| events.get(event));
            let group: Vec<&str> = group.chain(beside).copied().collect();
            group.len() <= limit.saturating_add(beside.len()) && self.schedules(&group)
        };
        let fitting: Vec<usize> = (1..sets).filter(|set| fits(*set)).collect();
        let mut fewest = vec![usize::MAX; sets];
        fewest[0] = 0;
        for set in 1..sets {
            let parts = fitting.iter().filter(|part| **part & set == **part);
            let rest = parts.map(|part| fewest[set & !part].saturating_add(1));
            fewest[set] = rest.min().unwrap_or(usize::MAX);
        }
        fewest[sets - 1]
    }
}

/// Give an event a counter; an event whose counter it takes gets another.
fn assign(
    event: usize,
    wants: &[Counters],
    tried: &mut Counters,
    owner: &mut HashMap<u32, usize>,
) -> bool {
    (0..Counters::BITS).any(|counter| {
        let bit = 1 << counter;
        if wants[event] & bit == 0 || *tried & bit != 0 {
            return false;
        }
        *tried |= bit;
        let free = match owner.get(&counter).copied() {
            None => true,
            Some(other) => assign(other, wants, tried, owner),
        };
        if free {
            owner.insert(counter, event);
        }
        free
    })
}

/// Names of hardware events, without `hw.`, and what is opened for each.
pub fn hardware() -> Vec<(String, Request)> {
    let events = sources::all().into_iter();
    let hardware = events.filter_map(|event| match event.origin {
        Origin::Perf(request) => Some((event.name.strip_prefix("hw.")?.to_owned(), request)),
        Origin::Counted { .. } | Origin::Steal => None,
    });
    hardware.collect()
}

/// A described PMU whose counters are partly held by others, including the reference event.
pub struct Described<'a> {
    pub description: &'a Description,
    pub held: Vec<&'a str>,
    names: HashMap<Request, String>,
    /// How often the PMU was asked.
    pub asked: usize,
}

impl<'a> Described<'a> {
    pub fn new(description: &'a Description, held: &[&'a str]) -> Self {
        let named = hardware().into_iter();
        Self {
            description,
            held: held.to_vec(),
            names: named.map(|(name, request)| (request, name)).collect(),
            asked: 0,
        }
    }
}

impl Pmu for Described<'_> {
    fn holds(&mut self, group: &[Request]) -> Result<bool, Errno> {
        self.asked += 1;
        let names = group.iter().map(|event| self.names[event].as_str());
        let all: Vec<&str> = names.chain(self.held.iter().copied()).collect();
        Ok(self.description.schedules(&all))
    }
}
