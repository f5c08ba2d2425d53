use super::*;

fn guest(change: impl FnOnce(&mut GuestSetup)) -> Guest {
    let mut setup = GuestSetup {
        tables: TableFormat::Four,
        memory_bytes: 64 << 20,
        isolation: false,
        pcid: false,
        map_on_touch: None,
        fault_cycles: 1000,
        system_call_cycles: 100,
        switch_cycles: 500,
    };
    change(&mut setup);
    Guest::new(setup).unwrap()
}

fn map(guest: &mut Guest, start: u64, bytes: u64, size: PageSize) {
    let operation = Operation::Map {
        start: Gva(start),
        bytes,
        size,
    };
    guest.apply(&operation, &mut Vec::new()).unwrap();
}

fn touch(guest: &mut Guest, address: u64, write: bool) -> Vec<GuestEvent> {
    let mut events = Vec::new();
    if guest.translate(Gva(address), write).is_err() {
        guest
            .handle_fault(Gva(address), write, &mut events)
            .unwrap();
    }
    guest.translate(Gva(address), write).unwrap();
    events
}

fn apply(guest: &mut Guest, operation: Operation) -> Vec<GuestEvent> {
    let mut events = Vec::new();
    guest.apply(&operation, &mut events).unwrap();
    events
}

fn writes(events: &[GuestEvent]) -> Vec<u8> {
    let level = |event: &GuestEvent| match event {
        GuestEvent::TableWrite { level, .. } => Some(*level),
        _ => None,
    };
    events.iter().filter_map(level).collect()
}

#[test]
fn a_first_touch_builds_the_path_and_the_second_page_only_its_entry() {
    let mut guest = guest(|_| ());
    map(&mut guest, 0x10_0000, 0x10_000, PageSize::K4);
    assert_eq!(writes(&touch(&mut guest, 0x10_0000, false)), [4, 3, 2, 1]);
    assert_eq!(writes(&touch(&mut guest, 0x10_1000, true)), [1]);
    let found = guest.translate(Gva(0x10_1234), false).unwrap();
    assert_eq!(
        (found.page, found.depth, found.dirty),
        (Gva(0x10_1000), 4, true)
    );
    assert!(!guest.translate(Gva(0x10_0000), false).unwrap().dirty);
}

#[test]
fn isolation_doubles_the_root_and_loads_cr3_twice_per_entry() {
    let mut guest = guest(|setup| setup.isolation = true);
    map(&mut guest, 0, 0x1000, PageSize::K4);
    let events = touch(&mut guest, 0, false);
    assert_eq!(writes(&events), [4, 4, 3, 2, 1]);
    let loads = |events: &[GuestEvent]| {
        events
            .iter()
            .filter(|event| matches!(event, GuestEvent::LoadCr3 { .. }))
            .count()
    };
    assert_eq!(loads(&events), 2);
    assert_eq!(
        loads(&apply(&mut guest, Operation::SystemCalls { count: 3 })),
        6
    );
}

#[test]
fn unmapping_frees_pages_tables_and_addresses() {
    let mut guest = guest(|_| ());
    map(&mut guest, 0, 0x2000, PageSize::K4);
    let root_only = guest.tables().len();
    touch(&mut guest, 0, true);
    touch(&mut guest, 0x1000, true);
    let events = apply(
        &mut guest,
        Operation::Unmap {
            start: Gva(0),
            bytes: 0x2000,
        },
    );
    assert_eq!(writes(&events), [1, 1, 2, 3, 4]);
    assert_eq!(
        events
            .iter()
            .filter(|e| matches!(e, GuestEvent::Invlpg { .. }))
            .count(),
        2
    );
    assert_eq!(guest.tables().len(), root_only);
    assert!(guest.translate(Gva(0), false).is_err());
    assert!(guest.handle_fault(Gva(0), false, &mut Vec::new()).is_err());
}

#[test]
fn more_than_33_pages_are_flushed_at_once() {
    let mut guest = guest(|_| ());
    map(&mut guest, 0, 0x40_000, PageSize::K4);
    for page in 0..34 {
        touch(&mut guest, page << 12, true);
    }
    let events = apply(
        &mut guest,
        Operation::Unmap {
            start: Gva(0),
            bytes: 34 << 12,
        },
    );
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, GuestEvent::Invlpg { .. }))
    );
    assert!(events.iter().any(|event| matches!(
        event,
        GuestEvent::LoadCr3 {
            preserve: false,
            ..
        }
    )));
}

#[test]
fn fork_copies_on_the_first_write_and_only_then() {
    let mut guest = guest(|_| ());
    map(&mut guest, 0, 0x2000, PageSize::K4);
    touch(&mut guest, 0, true);
    let before = guest.translate(Gva(0), false).unwrap().frame;
    let events = apply(&mut guest, Operation::Fork { child: 1 });
    // The parent's entry goes read-only; the child gets a path of four entries.
    assert_eq!(writes(&events), [1, 4, 3, 2, 1]);
    let parent = touch(&mut guest, 0, true);
    assert_eq!(writes(&parent), [1]);
    assert_ne!(guest.translate(Gva(0), false).unwrap().frame, before);
    apply(&mut guest, Operation::Switch { process: 1 });
    assert_eq!(guest.translate(Gva(0), false).unwrap().frame, before);
    // The child is the last owner: it may write without a copy.
    touch(&mut guest, 0, true);
    assert_eq!(guest.translate(Gva(0), false).unwrap().frame, before);
    apply(&mut guest, Operation::Switch { process: 0 });
    apply(&mut guest, Operation::Exit { process: 1 });
    assert!(
        guest
            .apply(&Operation::Switch { process: 1 }, &mut Vec::new())
            .is_err()
    );
}

#[test]
fn protection_is_kept_and_lifted() {
    let mut guest = guest(|_| ());
    map(&mut guest, 0, 0x1000, PageSize::K4);
    touch(&mut guest, 0, true);
    apply(
        &mut guest,
        Operation::Protect {
            start: Gva(0),
            bytes: 0x1000,
            writable: false,
        },
    );
    assert!(
        guest
            .translate(Gva(0), true)
            .is_err_and(|walk| walk.protection)
    );
    assert!(guest.handle_fault(Gva(0), true, &mut Vec::new()).is_err());
    apply(
        &mut guest,
        Operation::Protect {
            start: Gva(0),
            bytes: 0x1000,
            writable: true,
        },
    );
    assert!(guest.translate(Gva(0), true).is_ok());
}

#[test]
fn large_pages_have_short_walks_in_every_format() {
    for (tables, bytes, depth) in [
        (TableFormat::Two, 4_u64 << 20, 1),
        (TableFormat::Four, 2 << 20, 3),
        (TableFormat::Five, 2 << 20, 4),
    ] {
        let mut guest = guest(|setup| setup.tables = tables);
        map(&mut guest, 0, 2 * bytes, PageSize::M2);
        touch(&mut guest, bytes + 5, true);
        let found = guest.translate(Gva(bytes + 0x1234), false).unwrap();
        assert_eq!((found.page, found.depth), (Gva(bytes), depth), "{tables:?}");
        assert!(found.frame.0.is_multiple_of(bytes >> 12));
    }
}

#[test]
fn memory_ends_with_an_error() {
    let mut guest = guest(|setup| setup.memory_bytes = 16 << 12);
    map(&mut guest, 0, 0x100_000, PageSize::K4);
    let error = (0..100)
        .find_map(|page| {
            guest
                .handle_fault(Gva(page << 12), true, &mut Vec::new())
                .err()
        })
        .unwrap();
    assert_eq!(
        error,
        ModelError::OutOfMemory {
            memory_bytes: 16 << 12
        }
    );
}

#[test]
fn addresses_outside_the_format_are_refused() {
    let mut guest = guest(|setup| setup.map_on_touch = Some(PageSize::K4));
    assert!(
        guest
            .handle_fault(Gva(0x0100_0000_0000_0000), false, &mut Vec::new())
            .is_err()
    );
    touch(&mut guest, 0xffff_8880_0000_1000, true);
    touch(&mut guest, 0x7fff_ffff_f000, true);
}

mod any_operations {
    use proptest::prelude::*;

    use super::*;

    fn operation() -> impl Strategy<Value = Operation> {
        let start = (0_u64..64).prop_map(|page| Gva(page << 12));
        let bytes = (1_u64..16).prop_map(|pages| pages << 12);
        prop_oneof![
            (start.clone(), bytes.clone()).prop_map(|(start, bytes)| Operation::Map {
                start,
                bytes,
                size: PageSize::K4
            }),
            (start.clone(), bytes.clone())
                .prop_map(|(start, bytes)| Operation::Unmap { start, bytes }),
            (start, bytes, any::<bool>()).prop_map(|(start, bytes, writable)| {
                Operation::Protect {
                    start,
                    bytes,
                    writable,
                }
            }),
            (0_u32..4).prop_map(|child| Operation::Fork { child }),
            (0_u32..4).prop_map(|process| Operation::Exit { process }),
            (0_u32..4).prop_map(|process| Operation::Switch { process }),
            (0_u32..3).prop_map(|count| Operation::SystemCalls { count }),
        ]
    }

    proptest! {
        #[test]
        fn keep_the_guest_whole(
            steps in prop::collection::vec((operation(), 0_u64..64, any::<bool>()), 1..60),
            isolation in any::<bool>(),
        ) {
            let mut guest = guest(|setup| setup.isolation = isolation);
            let mut events = Vec::new();
            for (operation, page, write) in steps {
                let _ = guest.apply(&operation, &mut events);
                let address = Gva(page << 12);
                if guest.translate(address, write).is_err()
                    && guest.handle_fault(address, write, &mut events).is_ok()
                {
                    prop_assert!(guest.translate(address, write).is_ok());
                }
            }
            // At the end, everything is given back except the roots of the survivors.
            apply(&mut guest, Operation::Unmap { start: Gva(0), bytes: 128 << 12 });
            let running = guest.running;
            let others: Vec<_> = guest.processes.keys().copied().collect();
            for process in others.into_iter().filter(|&number| number != running) {
                apply(&mut guest, Operation::Exit { process });
            }
            prop_assert_eq!(guest.tables().len(), if isolation { 2 } else { 1 });
        }
    }
}
