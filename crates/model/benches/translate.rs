//! Rates of translation: the guest's own tables and one core behind them.
//!
//! With `--follow opteron/random/nested PASSES` nothing is timed: the references are followed that
//! many times, for a tool that counts instructions. The difference between two runs is without the
//! guest's start, which takes longer than a pass.

#![allow(clippy::unwrap_used)]

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group};
use vtax_model::model::address::{Gva, PageSize, Reference, TableFormat};
use vtax_model::model::core::{Core, CoreSetup};
use vtax_model::model::guest::{Block, Guest, GuestSetup};
use vtax_model::model::host_pages::HostPages;
use vtax_model::model::machine::Machine;
use vtax_model::model::mode::Translating;
use vtax_model::step::Operation;

const START: u64 = 0x7f00_0000_0000;
const BYTES: u64 = 1 << 30;
const MEMORY: u64 = 2 << 30;
/// References of one measured iteration.
const BLOCK: usize = 1 << 20;

const MACHINES: [(&str, &str); 2] = [
    ("opteron", include_str!("opteron-sized.toml")),
    ("server", include_str!("server-sized.toml")),
];

/// What a core does about a reference, and whether it walks.
const MODES: [(&str, Translating, bool); 4] = [
    ("tlb-only", Translating::Native, false),
    ("native", Translating::Native, true),
    ("nested", Translating::Nested, true),
    ("shadow", Translating::Shadow, true),
];

/// A guest with all pages of the range mapped and written.
fn guest(machine: &Machine, cores: &mut [Core]) -> Guest {
    let mut guest = Guest::new(GuestSetup::new(TableFormat::Four, MEMORY, &machine.costs)).unwrap();
    let mut events = Vec::new();
    let map = Operation::Map {
        start: Gva(START),
        bytes: BYTES,
        size: PageSize::K4,
    };
    guest.apply(&map, &mut events).unwrap();
    for page in 0..BYTES >> 12 {
        let address = Gva(START + (page << 12));
        guest.handle_fault(address, true, &mut events).unwrap();
        let found = guest.translate(address, true).unwrap();
        for core in &mut *cores {
            for event in &events {
                core.guest_event(event, guest.tables());
            }
            core.access(address, &found, true, guest.tables());
        }
        events.clear();
    }
    guest
}

fn core(machine: &Machine, translating: Translating, walks: bool) -> Core {
    let setup = CoreSetup {
        machine: machine.clone(),
        guest_tables: TableFormat::Four,
        guest_page: PageSize::K4,
        host_pages: HostPages::of(PageSize::K4),
        isolation: false,
        memory_bytes: MEMORY,
        shadow: vtax_model::model::shadow::ShadowStyle::KVM,
        caches: true,
        walks,
        seed: 1,
    };
    Core::new(&setup, translating).unwrap()
}

fn read(address: u64) -> Reference {
    Reference::new(Gva(address), false)
}

/// Addresses anywhere in the range, from xorshift64.
fn random() -> Vec<Reference> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        read(START + ((state >> 16) & (BYTES - 1) & !7))
    };
    (0..BLOCK).map(next).collect()
}

/// Every word in order, starting over at the end of the range.
fn sequential() -> Vec<Reference> {
    (0..BLOCK as u64)
        .map(|word| read(START + word * 8 % BYTES))
        .collect()
}

/// The guest's own walk of each reference, without a core.
fn fill(guest: &Guest, block: &mut Block, references: &[Reference]) {
    let mut rest = references;
    while !rest.is_empty() {
        rest = &rest[block.fill(guest, rest).0..];
    }
}

/// Follows the references as a simulation does, in blocks.
fn follow(guest: &Guest, block: &mut Block, core: &mut Core, references: &[Reference]) {
    let mut rest = references;
    while !rest.is_empty() {
        let (taken, changes) = block.fill(guest, rest);
        assert!(!changes, "all pages are mapped, and nothing is written");
        core.follow_block(block, guest.tables());
        rest = &rest[taken..];
    }
}

fn modes(group: &mut BenchmarkGroup<'_, WallTime>, machine: &Machine, references: &[Reference]) {
    for (name, translating, walks) in MODES {
        let mut cores = [core(machine, translating, walks)];
        let guest = guest(machine, &mut cores);
        let mut block = Block::default();
        let [core] = &mut cores;
        group.bench_function(name, |bencher| {
            bencher.iter(|| follow(&guest, &mut block, core, references));
        });
    }
}

fn translate(criterion: &mut Criterion) {
    for (name, text) in MACHINES {
        let machine = Machine::parse(text).unwrap();
        for (pattern, references) in [("random", random()), ("sequential", sequential())] {
            let mut group = criterion.benchmark_group(format!("{name}/{pattern}"));
            group
                .throughput(Throughput::Elements(references.len() as u64))
                .sample_size(20);
            modes(&mut group, &machine, &references);
            group.finish();
        }
    }
}

/// The cost of the guest's own walk, which every mode's rate contains.
fn guest_only(criterion: &mut Criterion) {
    let machine = Machine::parse(MACHINES[0].1).unwrap();
    let guest = guest(&machine, &mut []);
    let mut block = Block::default();
    let references = random();
    let mut group = criterion.benchmark_group("guest");
    group
        .throughput(Throughput::Elements(references.len() as u64))
        .sample_size(20);
    group.bench_function("random", |bencher| {
        bencher.iter(|| fill(&guest, &mut block, &references));
    });
    group.finish();
}

/// Follows the references of one setup, or lets the guest alone walk for them.
fn count(setup: &str, passes: usize) {
    let mut parts = setup.split('/');
    let [machine, pattern, mode] = [(); 3].map(|()| parts.next().unwrap());
    let (_, text) = MACHINES
        .into_iter()
        .find(|known| known.0 == machine)
        .unwrap();
    let machine = Machine::parse(text).unwrap();
    let references = if pattern == "random" {
        random()
    } else {
        assert_eq!(pattern, "sequential");
        sequential()
    };
    let modes = MODES.into_iter().filter(|known| known.0 == mode);
    let mut cores: Vec<_> = modes
        .map(|(_, translating, walks)| core(&machine, translating, walks))
        .collect();
    assert!(mode == "guest" || !cores.is_empty(), "{mode}");
    let guest = guest(&machine, &mut cores);
    let mut block = Block::default();
    for _ in 0..passes {
        match &mut cores[..] {
            [core] => follow(&guest, &mut block, core, &references),
            _ => fill(&guest, &mut block, &references),
        }
    }
    for core in &cores {
        println!("{:?}", core.counters());
    }
}

criterion_group!(benches, guest_only, translate);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [option, setup, passes, ..] = &arguments[..]
        && option == "--follow"
    {
        return count(setup, passes.parse().unwrap());
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
