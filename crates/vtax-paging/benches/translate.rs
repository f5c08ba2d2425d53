//! Rates of translation: the guest's own tables and one core behind them.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use vtax_paging::model::address::{Gva, PageSize, TableFormat};
use vtax_paging::model::core::{Core, CoreSetup};
use vtax_paging::model::guest::{Guest, GuestSetup};
use vtax_paging::model::machine::Machine;
use vtax_paging::model::mode::Translating;
use vtax_paging::step::Operation;

const START: u64 = 0x7f00_0000_0000;
const BYTES: u64 = 1 << 30;
const MEMORY: u64 = 2 << 30;
/// References of one measured iteration.
const BLOCK: usize = 1 << 20;

const MACHINES: [(&str, &str); 2] = [
    ("opteron", include_str!("opteron-sized.toml")),
    ("server", include_str!("server-sized.toml")),
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
        host_page: PageSize::K4,
        isolation: false,
        memory_bytes: MEMORY,
        shadow: vtax_paging::model::shadow::ShadowStyle::KVM,
        caches: true,
        walks,
        seed: 1,
    };
    Core::new(&setup, translating).unwrap()
}

/// Addresses anywhere in the range, from xorshift64.
fn random() -> Vec<Gva> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Gva(START + ((state >> 16) & (BYTES - 1) & !7))
    };
    (0..BLOCK).map(next).collect()
}

/// Every word in order, starting over at the end of the range.
fn sequential() -> Vec<Gva> {
    (0..BLOCK as u64)
        .map(|word| Gva(START + word * 8 % BYTES))
        .collect()
}

/// Follows the references as a simulation does: consecutive ones of a page are one access.
fn follow(guest: &mut Guest, core: &mut Core, addresses: &[Gva]) {
    let mut last = u64::MAX;
    for &address in addresses {
        let page = address.0 >> 12;
        if page == last {
            continue;
        }
        last = page;
        if let Ok(found) = guest.translate(address, false) {
            core.access(address, &found, false, guest.tables());
        }
    }
}

fn modes(group: &mut BenchmarkGroup<'_, WallTime>, machine: &Machine, addresses: &[Gva]) {
    let modes = [
        ("tlb-only", Translating::Native, false),
        ("native", Translating::Native, true),
        ("nested", Translating::Nested, true),
        ("shadow", Translating::Shadow, true),
    ];
    for (name, translating, walks) in modes {
        let mut cores = [core(machine, translating, walks)];
        let mut guest = guest(machine, &mut cores);
        let [core] = &mut cores;
        group.bench_function(name, |bencher| {
            bencher.iter(|| follow(&mut guest, core, addresses));
        });
    }
}

fn translate(criterion: &mut Criterion) {
    for (name, text) in MACHINES {
        let machine = Machine::parse(text).unwrap();
        for (pattern, addresses) in [("random", random()), ("sequential", sequential())] {
            let mut group = criterion.benchmark_group(format!("{name}/{pattern}"));
            group
                .throughput(Throughput::Elements(addresses.len() as u64))
                .sample_size(20);
            modes(&mut group, &machine, &addresses);
            group.finish();
        }
    }
}

/// What the guest's own walk costs, which every mode's rate contains.
fn guest_only(criterion: &mut Criterion) {
    let machine = Machine::parse(MACHINES[0].1).unwrap();
    let mut guest = guest(&machine, &mut []);
    let addresses = random();
    let mut group = criterion.benchmark_group("guest");
    group
        .throughput(Throughput::Elements(addresses.len() as u64))
        .sample_size(20);
    group.bench_function("random", |bencher| {
        bencher.iter(|| {
            addresses
                .iter()
                .filter(|&&a| guest.translate(a, false).is_ok())
                .count()
        });
    });
    group.finish();
}

criterion_group!(benches, guest_only, translate);
criterion_main!(benches);
