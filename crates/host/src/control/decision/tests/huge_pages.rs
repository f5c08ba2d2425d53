//! Huge pages beside the switch.

use crate::control::huge_pages::HugePages;
use crate::control::huge_pages::tests::{Acts, Memory};

use super::*;

const MEMORY: u64 = 8 << 20;

/// A rig whose guests' memory may become huge.
fn huge(mode: PagingMode, apply: bool, windows: &[Window]) -> (Rig, Rc<RefCell<Acts>>) {
    let memory = Rc::new(RefCell::new(Acts {
        small: MEMORY,
        ..Acts::default()
    }));
    let mut rig = rig(mode, apply, windows);
    let parts = (&rig.acts, &rig.guests);
    let pages = HugePages::new(Box::new(Memory(Rc::clone(&memory))), LIMITS.min_dwell_s);
    rig.control = control(parts, NAIVE, LIMITS, apply).with(Some(pages));
    (rig, memory)
}

#[test]
fn pages_become_huge_in_nested_paging_alone() {
    // The policy is not obeyed: it would have the mode changed.
    let (mut rig, memory) = huge(PagingMode::Nested, false, &[MISSING]);
    let lines = rig.windows(20);
    assert_eq!(memory.borrow().huge, MEMORY);
    let last = lines.last().unwrap();
    assert_eq!(last.huge_bytes, Some(MEMORY));
    // 1,000,000 misses at 150 cycles, of 200,000,000 cycles.
    let gain = last.huge_gain_percent.unwrap();
    assert!((gain - 75.0 * 5.0 / 24.0).abs() < 1e-9, "{gain}");
    let (mut rig, memory) = huge(PagingMode::Shadow, false, &[FAULTING]);
    let lines = rig.windows(20);
    assert_eq!(memory.borrow().huge, 0);
    assert_eq!(lines.last().unwrap().huge_gain_percent, None);
}

#[test]
fn after_another_mode_guests_keep_what_they_have() {
    let (mut rig, memory) = huge(PagingMode::Nested, false, &[MISSING]);
    rig.windows(20);
    assert_eq!(memory.borrow().huge, MEMORY);
    rig.acts.borrow_mut().mode = Some(PagingMode::Shadow);
    let line = rig.window();
    assert!(line.events[0].contains("somebody else"), "{line:?}");
    assert_eq!(line.huge_bytes, Some(0));
}

#[test]
fn a_switch_comes_before_huge_pages() {
    let (mut rig, memory) = huge(PagingMode::Nested, true, &[MISSING]);
    let lines = rig.windows(8);
    assert!(lines.iter().any(|line| line.applied), "{lines:?}");
    assert_eq!(rig.acts.borrow().mode, Some(PagingMode::Shadow));
    assert_eq!(memory.borrow().looked, 0);
}
