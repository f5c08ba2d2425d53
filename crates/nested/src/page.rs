//! The page of counters: what was counted, published by a thread of its own.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vtax_sys::guest_page::Publisher;

use crate::walks::Counted;
use crate::world::World;

/// The names of the counters, in the order of their values (docs/environments.md).
const NAMES: [&str; 9] = [
    "model.instructions",
    "model.cycles",
    "model.tlb_misses",
    "model.walk_cycles",
    "model.exits",
    "model.paging_exits",
    "model.walk_references",
    "model.vmm_cycles",
    "model.host_instructions",
];
const EVERY: Duration = Duration::from_millis(50);

/// The values, written by the thread of the emulated CPU.
pub static VALUES: Values = Values([const { AtomicU64::new(0) }; NAMES.len()]);

pub struct Values([AtomicU64; NAMES.len()]);

impl Values {
    /// Take over what was counted up to now: `guest` and `host` instructions, exits and walks;
    /// `exit_cycles` is what leaving and entering the guest costs.
    ///
    /// Exits that are not for paging count no cycles: most come by time, and an emulator is slow.
    pub fn put(&self, guest: u64, host: u64, world: &World, walks: Counted, exit_cycles: u32) {
        let vmm = world.paging.exits * u64::from(exit_cycles) + world.paging.instructions;
        // An instruction takes one cycle without translation, in the guest and in the host: an
        // assumption, as for traces.
        let cycles = guest + vmm + walks.walk_cycles + walks.tlb_cycles;
        let values = [
            guest,
            cycles,
            walks.tlb_misses,
            walks.walk_cycles,
            world.exits,
            world.paging.exits,
            walks.walk_references,
            vmm,
            host,
        ];
        for (place, value) in self.0.iter().zip(values) {
            place.store(value, Ordering::Relaxed);
        }
    }

    fn all(&self) -> [u64; NAMES.len()] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}

/// Publish from now on, until QEMU ends. The error is a reason.
pub fn start(path: &Path) -> Result<(), String> {
    let mut publisher = Publisher::create(path, &NAMES).map_err(|error| error.to_string())?;
    let publish = move || {
        while publisher.publish(&VALUES.all()).is_ok() {
            thread::sleep(EVERY);
        }
    };
    let thread: io::Result<_> = thread::Builder::new()
        .name("vtax-nested".into())
        .spawn(publish);
    thread.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_instructions_exits_and_walks() {
        let values = Values([const { AtomicU64::new(0) }; NAMES.len()]);
        let mut world = World::default();
        world.enter(0);
        world.exit(0);
        world.enter(300);
        let walks = Counted {
            tlb_misses: 3,
            walk_references: 12,
            walk_cycles: 90,
            tlb_cycles: 7,
        };
        values.put(1000, 500, &world, walks, 1500);
        let found: Vec<_> = NAMES.into_iter().zip(values.all()).collect();
        let expected = [
            ("model.instructions", 1000),
            ("model.cycles", 1000 + 1500 + 300 + 97),
            ("model.tlb_misses", 3),
            ("model.walk_cycles", 90),
            ("model.exits", 1),
            ("model.paging_exits", 1),
            ("model.walk_references", 12),
            ("model.vmm_cycles", 1800),
            ("model.host_instructions", 500),
        ];
        assert_eq!(found, expected);
    }
}
