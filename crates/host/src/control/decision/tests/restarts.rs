//! What a controller makes of the state that an earlier one left.

use super::*;

#[test]
fn a_switch_that_was_cut_off_is_recovered_and_then_the_mode_is_held() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING]);
    let left = State {
        switching: Some(PagingMode::Nested),
        ..State::default()
    };
    rig.control
        .resume(left.clone(), vec!["resumed".into()], 100.0);
    let lines = rig.windows(20);
    assert_eq!(
        lines[0].events,
        ["resumed", "a switch to nested was cut off: recovered"]
    );
    held(&lines[1], "a switch to nested was cut off (1 in a row");
    assert_eq!(rig.acts.borrow().recovered, 1);
    assert_eq!(rig.switched(), [PagingMode::Nested], "after the wait");

    let mut rig = super::rig(PagingMode::Shadow, true, &[FAULTING]);
    rig.acts.borrow_mut().recover = Some("guest web: by hand".into());
    rig.control.resume(left.clone(), vec![], 100.0);
    let lines = rig.windows(30);
    held(&lines[29], "is not recovered: guest web: by hand");
    assert!(rig.switched().is_empty());
    // The next start tries once more.
    assert_eq!(rig.control.state().switching, Some(PagingMode::Nested));

    let mut rig = super::rig(PagingMode::Shadow, false, &[FAULTING]);
    rig.control.resume(left, vec![], 100.0);
    assert!(rig.window().events[0].contains("vtax paging recover"));
    assert_eq!(rig.acts.borrow().recovered, 0);
}

#[test]
fn the_dwell_outlives_a_restart() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING]);
    let mut left = State {
        mode: Some(PagingMode::Shadow),
        ..State::default()
    };
    left.guard.switched(98.0, Some(20.0));
    rig.control.resume(left, vec![], 100.0);
    let lines = rig.windows(8);
    held(&lines[1], "--min-dwell");
    assert_eq!(lines[7].decision, Decision::Switch);
}
