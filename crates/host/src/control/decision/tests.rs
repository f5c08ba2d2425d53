mod huge_pages;
mod restarts;
mod trials;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::control::host::Switched;
use crate::control::sensors::{CountedSource, Sensor, Values};

/// A host that obeys, and a record of what was asked of it.
#[derive(Debug, Default)]
struct Acts {
    mode: Option<PagingMode>,
    look: Option<String>,
    switch: Option<String>,
    recover: Option<String>,
    pause_ms: Option<f64>,
    rehearsal: Option<f64>,
    /// Guests need twice the cycles in this mode.
    slow: Option<PagingMode>,
    /// The controller is killed right after its next switch.
    kill: bool,
    killed: bool,
    switched: Vec<PagingMode>,
    rehearsed: u32,
    looked: u32,
    recovered: u32,
}

#[derive(Clone)]
struct Actor(Rc<RefCell<Acts>>);

impl Host for Actor {
    fn mode(&self) -> Result<PagingMode, String> {
        self.0.borrow().mode.ok_or_else(|| "no module".into())
    }

    fn look(&mut self, _to: PagingMode) -> Result<(), String> {
        let mut acts = self.0.borrow_mut();
        acts.looked += 1;
        acts.look.clone().map_or(Ok(()), Err)
    }

    fn rehearse(&mut self, _to: PagingMode) -> Result<f64, String> {
        let mut acts = self.0.borrow_mut();
        acts.rehearsed += 1;
        acts.rehearsal.ok_or_else(|| "no new QEMU".into())
    }

    fn switch(&mut self, to: PagingMode) -> Result<Switched, String> {
        let mut acts = self.0.borrow_mut();
        if let Some(reason) = acts.switch.clone() {
            return Err(reason);
        }
        acts.mode = Some(to);
        acts.switched.push(to);
        acts.killed = std::mem::take(&mut acts.kill);
        Ok(Switched {
            pause_ms: acts.pause_ms,
            warnings: vec![],
        })
    }

    fn recover(&mut self) -> Result<String, String> {
        let mut acts = self.0.borrow_mut();
        acts.recovered += 1;
        acts.recover.clone().map_or(Ok("recovered".into()), Err)
    }
}

/// What guests do in each of the next windows; the last entry repeats.
#[derive(Debug, Clone)]
enum Window {
    /// Instructions, TLB misses, paging exits.
    Ran(u64, u64, u64),
    Lost,
    Empty,
}

struct Guests {
    windows: Rc<RefCell<VecDeque<Window>>>,
    host: Rc<RefCell<Acts>>,
    counts: [u64; 4],
    there: BTreeSet<String>,
}

impl Sensor for Guests {
    fn name(&self) -> &'static str {
        "guests"
    }

    fn guests(&self) -> Option<&BTreeSet<String>> {
        Some(&self.there)
    }

    fn read(&mut self) -> Result<Vec<CountedSource>, String> {
        let mut windows = self.windows.borrow_mut();
        let window = match windows.len() {
            1 => windows.front().cloned(),
            _ => windows.pop_front(),
        };
        let (instructions, misses, exits) = match window {
            Some(Window::Ran(instructions, misses, exits)) => (instructions, misses, exits),
            Some(Window::Lost) | None => return Err("unplugged".into()),
            Some(Window::Empty) => {
                self.there.clear();
                return Ok(vec![]);
            }
        };
        self.there.insert("7-7".into());
        let host = self.host.borrow();
        let cpi = if host.slow.is_some() && host.slow == host.mode {
            4
        } else {
            2
        };
        let more = [instructions, misses, exits, cpi * instructions];
        for (count, more) in self.counts.iter_mut().zip(more) {
            *count += more;
        }
        let [instructions, misses, exits, cycles] = self.counts;
        let counts = Values::default()
            .with(Quantity::Instructions, instructions)
            .with(Quantity::Cycles, cycles)
            .with(Quantity::TlbMisses, misses)
            .with(Quantity::PagingExits, exits);
        Ok(vec![CountedSource {
            name: "7-7".into(),
            counts,
            publication: None,
        }])
    }
}

struct Rig {
    acts: Rc<RefCell<Acts>>,
    guests: Rc<RefCell<VecDeque<Window>>>,
    control: Control<Actor>,
    recipe: String,
    limits: Limits,
    now: f64,
    saved: Vec<State>,
    full: bool,
}

const NAIVE: &str = "policy = \"naive\"\nwindow = 10000000\n[parameters]\nthreshold_vexit = 100\nthreshold_tmiss = 1000";
/// Many exits for each window of policy `naive`, 1e7 instructions long.
const FAULTING: Window = Window::Ran(100_000_000, 100, 50_000);
/// Many TLB misses.
const MISSING: Window = Window::Ran(100_000_000, 1_000_000, 0);
const QUIET: Window = Window::Ran(100_000_000, 100, 10);

fn recipe(text: &str) -> Recipe {
    Recipe::parse(text, None, "zen4").unwrap()
}

const LIMITS: Limits = Limits {
    max_pause_ms: 200.0,
    min_dwell_s: 10.0,
};

fn control(
    rig: (&Rc<RefCell<Acts>>, &Rc<RefCell<VecDeque<Window>>>),
    text: &str,
    limits: Limits,
    apply: bool,
) -> Control<Actor> {
    let (acts, windows) = rig;
    let guests = Guests {
        windows: Rc::clone(windows),
        host: Rc::clone(acts),
        counts: [0; 4],
        there: BTreeSet::new(),
    };
    let sensors = Sensors::new(vec![Box::new(guests)]);
    Control::new(Actor(Rc::clone(acts)), sensors, recipe(text), limits, apply)
}

fn rig(mode: PagingMode, apply: bool, windows: &[Window]) -> Rig {
    let acts = Rc::new(RefCell::new(Acts {
        mode: Some(mode),
        pause_ms: Some(50.0),
        rehearsal: Some(40.0),
        ..Acts::default()
    }));
    let guests = Rc::new(RefCell::new(windows.iter().cloned().collect()));
    Rig {
        control: control((&acts, &guests), NAIVE, LIMITS, apply),
        acts,
        guests,
        recipe: NAIVE.into(),
        limits: LIMITS,
        now: 100.0,
        saved: vec![],
        full: false,
    }
}

impl Rig {
    fn window(&mut self) -> Line {
        self.now += 1.0;
        let (saved, full) = (&mut self.saved, self.full);
        let mut save = |state: &State| {
            if full {
                return Err(Error::failure("disk", "full", "free space"));
            }
            saved.push(state.clone());
            Ok(())
        };
        self.control.window(self.now, self.now, &mut save)
    }

    fn windows(&mut self, count: usize) -> Vec<Line> {
        (0..count).map(|_| self.window()).collect()
    }

    fn switched(&self) -> Vec<PagingMode> {
        self.acts.borrow().switched.clone()
    }
}

fn held(line: &Line, reason: &str) {
    assert_eq!(line.decision, Decision::Hold, "{line:?}");
    assert!(line.reason.contains(reason), "{reason}: {line:?}");
}

#[test]
fn it_follows_the_guests_and_lets_modes_last() {
    let mut windows = vec![QUIET; 3];
    windows.extend(vec![FAULTING; 3]);
    windows.push(MISSING);
    let mut rig = rig(PagingMode::Shadow, true, &windows);
    let lines = rig.windows(30);
    let switches: Vec<(usize, Option<PagingMode>)> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.decision == Decision::Switch)
        .map(|(at, line)| (at, line.to))
        .collect();
    assert_eq!(
        switches[..2],
        [
            (3, Some(PagingMode::Nested)),
            (13, Some(PagingMode::Shadow))
        ]
    );
    assert_eq!(
        rig.switched()[..2],
        [PagingMode::Nested, PagingMode::Shadow]
    );
    held(&lines[2], "keeps shadow");
    held(&lines[8], "--min-dwell");
    assert!(lines[3].applied && lines[3].pause_ms == Some(50.0));
    assert_eq!(lines[3].mode, Some(PagingMode::Nested));
    // Before the switch the controller recorded it on disk, and after the switch that it was done.
    let begun = rig.saved.iter().position(|state| state.switching.is_some());
    let begun = begun.unwrap();
    assert_eq!(rig.saved[begun + 1].switching, None);
}

#[test]
fn without_apply_it_says_what_it_would_do_and_touches_nothing() {
    let mut rig = rig(PagingMode::Shadow, false, &[FAULTING]);
    let lines = rig.windows(15);
    assert_eq!(
        (lines[1].decision, lines[1].applied),
        (Decision::Switch, false)
    );
    assert_eq!(lines[1].to, Some(PagingMode::Nested));
    assert!(lines[1].gain_percent.unwrap() > 1.0);
    assert!(lines[1].gain_source.as_deref().unwrap().contains("model"));
    held(&lines[3], "--min-dwell");
    let said = lines
        .iter()
        .filter(|line| line.decision == Decision::Switch);
    assert_eq!(said.count(), 2);
    assert!(rig.switched().is_empty());
}

#[test]
fn a_lost_sensor_holds_and_its_return_goes_on() {
    let mut rig = rig(
        PagingMode::Shadow,
        true,
        &[QUIET, QUIET, Window::Lost, Window::Lost, QUIET, FAULTING],
    );
    let lines = rig.windows(6);
    held(&lines[0], "has counted no window yet");
    held(&lines[2], "sensor guests lost: unplugged");
    held(&lines[4], "has counted no window yet");
    assert_eq!(lines[5].decision, Decision::Switch);
}

#[test]
fn no_guest_and_idle_guests_hold() {
    let idle = Window::Ran(10, 0, 0);
    let mut rig = rig(
        PagingMode::Shadow,
        true,
        &[Window::Empty, Window::Empty, idle],
    );
    let lines = rig.windows(4);
    held(&lines[1], "no guest runs");
    // The guest that was added.
    held(&lines[2], "has counted no window yet");
    assert_eq!(lines[2].events, ["guest 7-7 came"]);
    held(&lines[3], "idle");
}

#[test]
fn a_guest_that_cannot_be_handed_over_holds_with_the_reason_and_is_asked_rarely() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING]);
    rig.acts.borrow_mut().look = Some("guest web has vhost".into());
    let lines = rig.windows(60);
    held(&lines[1], "cannot be switched: guest web has vhost");
    held(
        &lines[5],
        "guest web has vhost (1 in a row, the next attempt in",
    );
    assert!(rig.switched().is_empty());
    assert!((3..=4).contains(&rig.acts.borrow().looked));
    rig.acts.borrow_mut().look = None;
    rig.windows(60);
    assert_eq!(rig.switched(), [PagingMode::Nested]);
}

#[test]
fn a_failed_switch_waits_longer_each_time() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING]);
    rig.acts.borrow_mut().switch = Some("load: no memory; every guest runs on".into());
    let lines = rig.windows(80);
    held(&lines[1], "the switch failed: load: no memory");
    let tries = lines
        .iter()
        .filter(|line| line.reason.contains("; the switch failed"));
    let starts: Vec<f64> = tries
        .filter(|line| !line.reason.contains("in a row"))
        .map(|line| line.time)
        .collect();
    assert!(starts.len() >= 3, "{starts:?}");
    assert!(
        starts[2] - starts[1] > 1.5 * (starts[1] - starts[0]),
        "{starts:?}"
    );
    assert_eq!(rig.control.state().switching, None);
}

#[test]
fn a_pause_beyond_the_budget_is_the_last_one() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING, FAULTING, MISSING]);
    rig.acts.borrow_mut().pause_ms = Some(450.0);
    let lines = rig.windows(60);
    assert_eq!(rig.switched(), [PagingMode::Nested]);
    held(lines.last().unwrap(), "guests would pause 450 ms");
}

#[test]
fn a_mode_that_somebody_else_has_set_is_taken_as_it_is() {
    let mut rig = rig(PagingMode::Shadow, true, &[QUIET]);
    rig.windows(3);
    rig.acts.borrow_mut().mode = Some(PagingMode::Nested);
    let line = rig.window();
    assert_eq!(line.mode, Some(PagingMode::Nested));
    assert_eq!(
        line.events,
        ["somebody else has switched the host to nested"]
    );
    let lines = rig.windows(3);
    held(&lines[1], "keeps nested");
    rig.acts.borrow_mut().mode = None;
    held(&rig.window(), "no module");
}

#[test]
fn a_broken_policy_file_leaves_the_old_policy() {
    let mut rig = rig(PagingMode::Shadow, true, &[QUIET]);
    rig.windows(2);
    let broken = Recipe::read(Some("/nonexistent"), "zen4");
    rig.control.reload(broken);
    let line = rig.window();
    assert!(
        line.events[0].contains("the earlier policy stays"),
        "{line:?}"
    );
    assert_eq!(line.policy, "naive");
    rig.control.reload(Ok(recipe("policy = \"dav2m\"")));
    assert_eq!(rig.window().policy, "dav2m");
}

#[test]
fn a_policy_that_lacks_a_counter_names_it() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING]);
    rig.control
        .reload(Ok(recipe("policy = \"rpms\"\nwindow = 10000000")));
    let lines = rig.windows(2);
    held(&lines[1], "policy rpms");
    assert!(rig.switched().is_empty());
}

#[test]
fn a_policy_of_one_mode_needs_no_counter() {
    let windows = [Window::Ran(0, 0, 0)];
    let mut rig = rig(PagingMode::Shadow, true, &windows);
    rig.control.reload(Ok(recipe("policy = \"nested\"")));
    rig.windows(2);
    assert_eq!(rig.switched(), [PagingMode::Nested]);
}

#[test]
fn nothing_is_switched_when_the_state_cannot_be_kept() {
    let mut rig = rig(PagingMode::Shadow, true, &[FAULTING]);
    rig.full = true;
    let lines = rig.windows(3);
    held(&lines[1], "the state cannot be kept: disk: full");
    assert!(rig.switched().is_empty());
}

/// 4e9 instructions a second, as one busy processor retires them.
fn busy(misses: u64, exits: u64) -> Window {
    Window::Ran(4_000_000_000, misses, exits)
}

#[test]
fn the_default_policy_leaves_the_mode_that_costs_a_third_of_the_cycles() {
    // 1e6 exits of some 2,500 cycles, of 8e9 cycles in all; hardly a miss.
    let mut rig = rig(PagingMode::Shadow, true, &[busy(1000, 1_000_000)]);
    rig.control.reload(Ok(recipe("")));
    let lines = rig.windows(5);
    assert_eq!(lines[1].to, Some(PagingMode::Nested), "{lines:?}");
    assert!(lines[1].gain_percent.unwrap() > 20.0);
    // Without misses there is no reason to go back.
    let lines = rig.windows(60);
    assert!(lines.iter().all(|line| line.decision == Decision::Hold));
    assert_eq!(rig.switched(), [PagingMode::Nested]);
}

#[test]
fn quiet_guests_are_left_alone_by_every_policy() {
    for policy in ["vtax", "dav2m", "naive"] {
        for mode in [PagingMode::Shadow, PagingMode::Nested] {
            let mut rig = rig(mode, true, &[busy(1000, 100)]);
            rig.control
                .reload(Ok(Recipe::parse("", Some(policy), "zen4").unwrap()));
            rig.windows(120);
            assert!(rig.switched().is_empty(), "{policy} in {mode:?}");
        }
    }
}

proptest! {
    /// Whatever guests do and sensors say, there are no two switches within the dwell, and each
    /// line has a decision and a reason.
    #[test]
    fn it_never_oscillates(script in proptest::collection::vec(0_u8..5, 1..80)) {
        let windows: Vec<Window> = script.iter().map(|kind| match kind {
            0 => FAULTING,
            1 => MISSING,
            2 => QUIET,
            3 => Window::Lost,
            _ => Window::Empty,
        }).collect();
        let count = windows.len();
        let mut rig = rig(PagingMode::Shadow, true, &windows);
        let mut last = f64::NEG_INFINITY;
        for line in rig.windows(count) {
            prop_assert!(!line.reason.is_empty());
            if line.applied {
                prop_assert!(line.time - last >= 10.0);
                last = line.time;
            }
        }
    }
}
