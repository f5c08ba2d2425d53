use super::*;

const USER: u64 = PRESENT | WRITABLE | 1 << 2;

/// Frames of a guest whose kernel has one page at the end of the address space.
#[derive(Default)]
struct Memory(HashMap<u64, Contents>);

impl Memory {
    fn set(&mut self, frame: u64, index: usize, bits: u64) {
        let table = self
            .0
            .entry(frame)
            .or_insert_with(|| Box::new([0; ENTRIES]));
        table[index] = bits;
    }
}

impl GuestMemory for Memory {
    fn table(&mut self, frame: u64) -> Option<Contents> {
        Some(
            self.0
                .entry(frame)
                .or_insert_with(|| Box::new([0; ENTRIES]))
                .clone(),
        )
    }

    fn entry(&mut self, frame: u64, index: usize) -> Option<u64> {
        self.0.get(&frame).map(|table| table[index])
    }
}

/// The tables, and all reported operations.
struct World {
    memory: Memory,
    tables: Tables,
    told: Vec<Operation>,
}

impl World {
    /// A loaded root in frame 1, with one page in the kernel's half.
    fn new() -> Self {
        let mut memory = Memory::default();
        for (frame, next) in [(1, 2), (2, 3), (3, 4), (4, 99)] {
            memory.set(frame, 511, next << 12 | PRESENT | WRITABLE);
        }
        let mut world = Self {
            memory,
            tables: Tables::new(1000),
            told: Vec::new(),
        };
        world.load(1);
        world
    }

    fn load(&mut self, root: u64) -> Vec<Operation> {
        let tell = &mut |operation| self.told.push(operation);
        self.tables.load(root, false, &mut self.memory, tell);
        std::mem::take(&mut self.told)
    }

    /// The kernel writes an entry.
    fn store(&mut self, frame: u64, index: usize, bits: u64) -> Vec<Operation> {
        self.memory.set(frame, index, bits);
        assert!(self.tables.contains(frame));
        let tell = &mut |operation| self.told.push(operation);
        self.tables.store(frame, index, &mut self.memory, tell);
        std::mem::take(&mut self.told)
    }
}

fn freed(told: &[Operation]) -> Vec<u64> {
    let frame = |operation: &Operation| match operation {
        Operation::FreeTable { table } => Some(table.0),
        _ => None,
    };
    told.iter().filter_map(frame).collect()
}

#[test]
fn a_loaded_root_is_read_whole_and_nothing_of_it_is_written() {
    let mut world = World::new();
    assert_eq!(world.tables.len(), 4);
    let told = world.load(1);
    let (root, preserve) = (Gfn(1), false);
    assert_eq!(told, [Operation::LoadCr3 { root, preserve }]);
    for frame in 0..1001 {
        assert_eq!(
            world.tables.contains(frame),
            (1..=4).contains(&frame),
            "{frame}"
        );
    }
    let starts = world.tables.known[&4].start;
    assert_eq!(starts, 0xffff_ffff_ffe0_0000);
}

#[test]
fn tables_are_followed_from_their_link_to_the_end_of_it() {
    let mut world = World::new();
    world.memory.set(12, 7, 50 << 12 | USER);
    world.store(1, 0, 10 << 12 | USER);
    world.store(10, 0, 11 << 12 | USER);
    // This table had an entry before it was linked: the write of that entry could not be seen.
    let told = world.store(11, 1, 12 << 12 | USER);
    assert!(
        matches!(
            told[..],
            [
                Operation::Table {
                    frame: Gfn(12),
                    level: 1,
                    start: Gva(0x20_0000)
                },
                Operation::Entry {
                    table: Gfn(12),
                    index: 7,
                    written: false,
                    ..
                },
                Operation::Entry {
                    table: Gfn(11),
                    index: 1,
                    written: true,
                    ..
                },
            ]
        ),
        "{told:?}"
    );
    let told = world.store(12, 8, 51 << 12 | PRESENT | DIRTY);
    let entry = TableEntry {
        frame: Gfn(51),
        present: true,
        writable: false,
        dirty: true,
        large: false,
        old: true,
    };
    let expected = Operation::Entry {
        table: Gfn(12),
        index: 8,
        entry,
        written: true,
    };
    assert_eq!(told, [expected]);
    assert_eq!(freed(&world.store(11, 1, 0)), [0_u64; 0]);
    // A VMM that shadows the table learns of its end when the frame is used again.
    assert!(world.tables.contains(12));
    assert_eq!(
        world.store(12, 0, 0),
        [Operation::FreeTable { table: Gfn(12) }]
    );
    assert!(!world.tables.contains(12));
}

#[test]
fn a_change_of_flags_alone_keeps_the_table_below() {
    let mut world = World::new();
    world.store(1, 0, 10 << 12 | USER);
    let told = world.store(1, 0, 10 << 12 | USER | 1 << 5);
    assert_eq!((told.len(), freed(&told).len()), (1, 0));
    assert!(world.tables.contains(10));
}

#[test]
fn a_large_page_leads_nowhere() {
    let mut world = World::new();
    world.store(1, 0, 10 << 12 | USER);
    world.store(10, 0, 11 << 12 | USER);
    world.store(11, 0, 512 << 12 | USER | LARGE);
    assert!(!world.tables.contains(512));
}

#[test]
fn an_ended_process_leaves_no_tables_but_the_kernels() {
    let mut world = World::new();
    for (frame, next) in [(21, 22), (22, 23), (23, 24), (24, 60)] {
        world.memory.set(frame, 0, next << 12 | USER);
    }
    world.memory.set(21, 511, 2 << 12 | USER);
    world.load(21);
    assert_eq!(world.tables.len(), 7);
    // The first root maps no user memory and is not in use: it is forgotten, but the kernel's
    // tables below it stay.
    assert!(!world.tables.known.contains_key(&1));
    assert!(world.tables.known.contains_key(&2));
    // Linux empties the tables from the lowest level up while the root is still loaded.
    for frame in [23, 22, 21] {
        assert_eq!(freed(&world.store(frame, 0, 0)), [0_u64; 0]);
    }
    assert!(world.tables.known.contains_key(&21));
    // It was left before, and is a table again.
    assert_eq!(freed(&world.load(1)), [1]);
    assert_eq!(world.tables.len(), 4);
    for frame in [24, 23, 22, 21] {
        assert_eq!(freed(&world.store(frame, 5, 0)), [frame]);
    }
    assert_eq!(world.tables.len(), 4);
}

#[test]
fn frames_outside_the_memory_are_no_tables() {
    let mut world = World::new();
    world.store(1, 0, 1000 << 12 | USER);
    assert!(!world.tables.contains(1000));
    world.store(1, 1, ((1 << 40) - 1) << 12 | USER);
    assert_eq!(world.tables.len(), 4);
}
