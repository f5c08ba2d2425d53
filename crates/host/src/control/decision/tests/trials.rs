//! Trials: no host stays in a mode that was only tried, whatever comes in between.

use super::*;

/// A window of the rig is a window of the policy; a probe of nested paging lasts one of them, and
/// one of shadow paging two.
const DAV2M: &str = "policy = \"dav2m\"\nwindow = 100000000\n[parameters]\n\
    window_vexit = 100000000\nwindow_tmiss = 200000000\nwindow_prepaging = 200000000\n\
    threshold_vexit = 100\nthreshold_tmiss = 1000";

fn dav2m(mode: PagingMode, windows: &[Window]) -> Rig {
    let mut rig = rig(mode, true, windows);
    rig.recipe = DAV2M.into();
    rig.start(State::default());
    rig
}

impl Rig {
    /// A new controller that goes on from this state.
    fn start(&mut self, state: State) {
        let parts = (&self.acts, &self.guests);
        self.control = control(parts, &self.recipe, self.limits, true);
        self.control.resume(state, vec![], self.now);
    }

    /// The controller is killed and started again.
    fn restart(&mut self) {
        let state = self.saved.last().cloned().unwrap_or_default();
        self.start(state);
    }

    fn mode(&self) -> PagingMode {
        self.acts.borrow().mode.unwrap()
    }

    fn leave(&mut self) -> Option<Line> {
        self.control.leave(self.now, self.now, &mut |_| Ok(()))
    }
}

#[test]
fn a_probe_that_fails_returns_at_once_and_whatever_it_took() {
    let mut rig = dav2m(PagingMode::Shadow, &[QUIET, FAULTING, QUIET]);
    rig.acts.borrow_mut().slow = Some(PagingMode::Nested);
    rig.acts.borrow_mut().pause_ms = Some(950.0);
    let lines = rig.windows(12);
    let tried = &lines[1];
    assert!(
        tried.applied && tried.reason.contains("wants to try nested"),
        "{tried:?}"
    );
    assert!(
        tried.events[0].contains("950 ms, longer than --max-pause 200 ms"),
        "{tried:?}"
    );
    assert_eq!(rig.switched(), [PagingMode::Nested, PagingMode::Shadow]);
    let back = lines
        .iter()
        .find(|line| line.reason.starts_with("back to shadow"));
    // The dwell is 10 s.
    assert!(back.unwrap().time - tried.time < 5.0, "{back:?}");
    assert_eq!(rig.control.state().guard.trial, None);
}

#[test]
fn a_probe_that_passes_is_kept_and_then_lasts() {
    let mut rig = dav2m(PagingMode::Shadow, &[QUIET, FAULTING, QUIET]);
    let lines = rig.windows(80);
    assert_eq!(rig.switched(), [PagingMode::Nested]);
    assert!(
        lines
            .iter()
            .any(|line| line.reason.contains("keeps nested, which it tried"))
    );
    assert!(rig.leave().is_none());
    assert_eq!(rig.mode(), PagingMode::Nested);
}

#[test]
fn the_first_pause_is_rehearsed_and_not_assumed() {
    for (rehearsal, said) in [
        (None, "could not be rehearsed: no new QEMU"),
        (Some(300.0), "300 ms (at least, by a rehearsal)"),
    ] {
        let mut rig = dav2m(PagingMode::Shadow, &[FAULTING]);
        rig.acts.borrow_mut().rehearsal = rehearsal;
        let lines = rig.windows(30);
        assert!(lines[1].reason.contains(said), "{:?}", lines[1]);
        assert!(
            lines[1].reason.ends_with("decides without a trial"),
            "{:?}",
            lines[1]
        );
        assert!(rig.switched().is_empty());
        // Once for the policy; then each attempt rehearses again, and attempts are few.
        assert!((1..=4).contains(&rig.acts.borrow().rehearsed));
    }
}

#[test]
fn without_apply_nothing_is_rehearsed() {
    let mut rig = rig(PagingMode::Shadow, false, &[FAULTING]);
    let lines = rig.windows(3);
    assert_eq!(lines[1].decision, Decision::Switch);
    assert!(lines[1].events[0].contains("nobody knows"), "{lines:?}");
    assert_eq!(rig.acts.borrow().rehearsed, 0);
}

#[test]
fn other_limits_end_a_wait_that_limits_caused() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING]);
    rig.acts.borrow_mut().rehearsal = Some(950.0);
    rig.windows(40);
    assert!(rig.switched().is_empty());
    rig.limits.max_pause_ms = 5000.0;
    rig.restart();
    rig.windows(3);
    assert_eq!(rig.switched(), [PagingMode::Nested]);
}

#[test]
fn who_only_looks_leaves_a_trial_alone_and_says_so() {
    let mut rig = dav2m(PagingMode::Shadow, &[QUIET, FAULTING, Window::Lost]);
    rig.windows(2);
    let state = rig.saved.last().cloned().unwrap();
    rig.control = control((&rig.acts, &rig.guests), DAV2M, LIMITS, false);
    rig.control.resume(state, vec![], rig.now);
    held(
        &rig.window(),
        "back to shadow: the policy that tried it is gone; this one only looks",
    );
    assert!(rig.leave().is_none());
}

/// What can come in a second.
#[derive(Debug, Clone, Copy)]
enum Event {
    Runs(usize),
    Restart,
    Reload,
    OtherMode,
    SwitchesFail,
    SwitchesWork,
    LongPauses,
    KilledInTheNextSwitch,
    OtherLimits,
    MinutePasses,
    StateCannotBeKept,
}

const WINDOWS: [Window; 5] = [QUIET, FAULTING, MISSING, Window::Lost, Window::Empty];
const EVENTS: [Event; 15] = [
    Event::Runs(0),
    Event::Runs(1),
    Event::Runs(2),
    Event::Runs(3),
    Event::Runs(4),
    Event::Restart,
    Event::Reload,
    Event::OtherMode,
    Event::SwitchesFail,
    Event::SwitchesWork,
    Event::LongPauses,
    Event::KilledInTheNextSwitch,
    Event::OtherLimits,
    Event::MinutePasses,
    Event::StateCannotBeKept,
];

/// The mode to which the host must return, by what the controller has said and nothing else.
struct Oracle(Option<PagingMode>);

impl Oracle {
    fn hears(&mut self, line: &Line) {
        if line.applied && line.reason.contains("wants to try") {
            self.0 = line.to.map(PagingMode::other);
        } else if line.reason.contains("which it tried") || line.applied {
            self.0 = None;
        }
    }
}

fn comes(event: Event, rig: &mut Rig, oracle: &mut Oracle) {
    match event {
        Event::Runs(kind) => *rig.guests.borrow_mut() = [WINDOWS[kind].clone()].into(),
        Event::Restart => rig.restart(),
        Event::Reload => rig.control.reload(Ok(recipe(DAV2M))),
        Event::OtherMode => {
            let other = rig.mode().other();
            rig.acts.borrow_mut().mode = Some(other);
            oracle.0 = None;
        }
        Event::SwitchesFail => rig.acts.borrow_mut().switch = Some("no memory".into()),
        Event::SwitchesWork => rig.acts.borrow_mut().switch = None,
        Event::LongPauses => rig.acts.borrow_mut().pause_ms = Some(950.0),
        Event::KilledInTheNextSwitch => rig.acts.borrow_mut().kill = true,
        Event::OtherLimits => {
            rig.limits.max_pause_ms = 10.0;
            rig.restart();
        }
        Event::MinutePasses => rig.now += 60.0,
        Event::StateCannotBeKept => rig.full = !rig.full,
    }
    passes(rig, oracle);
}

/// A second passes. A controller that is killed says nothing.
fn passes(rig: &mut Rig, oracle: &mut Oracle) {
    let before = rig.mode();
    let line = rig.window();
    if std::mem::take(&mut rig.acts.borrow_mut().killed) {
        let tried = line.reason.contains("wants to try");
        oracle.0 = tried.then_some(before);
        rig.restart();
    } else {
        oracle.hears(&line);
    }
}

/// Whatever the order of events, a host that is in a mode which was only tried returns: by itself
/// when a minute has passed, and when the controller ends.
#[test]
fn every_order_of_events_ends_where_it_began_or_in_a_mode_that_was_chosen() {
    let starts = [
        (PagingMode::Shadow, 1, PagingMode::Nested),
        (PagingMode::Nested, 2, PagingMode::Shadow),
    ];
    let orders = EVENTS.iter().flat_map(|one| {
        EVENTS
            .iter()
            .flat_map(move |two| EVENTS.iter().map(move |three| [*one, *two, *three]))
    });
    let mut tried = 0;
    for order in orders {
        for (home, kind, slow) in starts {
            for ends in [false, true] {
                let mut rig = dav2m(home, &[WINDOWS[kind].clone()]);
                rig.acts.borrow_mut().slow = Some(slow);
                let mut oracle = Oracle(None);
                while oracle.0.is_none() {
                    passes(&mut rig, &mut oracle);
                    assert!(rig.now < 120.0, "nothing is tried");
                }
                tried += 1;
                for event in order {
                    comes(event, &mut rig, &mut oracle);
                    let known = rig.control.state().guard.trial.map(|trial| trial.home);
                    assert!(
                        oracle
                            .0
                            .is_none_or(|home| home == rig.mode() || known == Some(home)),
                        "{order:?}: {event:?}"
                    );
                }
                rig.acts.borrow_mut().switch = None;
                rig.acts.borrow_mut().kill = false;
                let must = oracle.0;
                if ends {
                    rig.leave();
                } else {
                    *rig.guests.borrow_mut() = [Window::Lost].into();
                    (0..140).for_each(|_| drop(rig.window()));
                }
                assert!(
                    must.is_none_or(|home| home == rig.mode()),
                    "{order:?}, ends: {ends}"
                );
                assert_eq!(
                    rig.control.state().guard.trial,
                    None,
                    "{order:?}, ends: {ends}"
                );
            }
        }
    }
    assert_eq!(tried, 4 * EVENTS.len().pow(3));
}
