use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

const DWELL_S: f64 = 10.0;
const CHUNK: u64 = 2 << 20;

/// Guests' memory that obeys, and what was asked of it.
#[derive(Debug, Default)]
pub struct Acts {
    pub small: u64,
    pub huge: u64,
    pub waiting: u64,
    pub short: bool,
    pub looked: u32,
    pub refused: Option<&'static str>,
    /// Bytes that cannot be made small.
    pub in_use: u64,
}

#[derive(Debug)]
pub struct Memory(pub Rc<RefCell<Acts>>);

impl GuestMemory for Memory {
    fn look(&mut self) -> Vec<String> {
        let mut acts = self.0.borrow_mut();
        acts.looked += 1;
        acts.waiting = acts.small;
        Vec::new()
    }

    fn waiting(&self) -> u64 {
        self.0.borrow().waiting
    }

    fn is_short(&self) -> bool {
        self.0.borrow().short
    }

    fn give(&mut self, _time: Duration) -> Given {
        let mut acts = self.0.borrow_mut();
        if acts.short {
            return Given::default();
        }
        let bytes = CHUNK.min(acts.waiting);
        acts.waiting -= bytes;
        if acts.refused.is_some() {
            return Given {
                bytes: 0,
                refused: acts.refused,
            };
        }
        acts.small -= bytes;
        acts.huge += bytes;
        Given {
            bytes,
            refused: None,
        }
    }

    fn take_back(&mut self) -> Result<TakenBack, String> {
        let mut acts = self.0.borrow_mut();
        let left = acts.in_use.min(acts.huge);
        let bytes = acts.huge - left;
        acts.huge = left;
        acts.small += bytes;
        Ok(TakenBack { bytes, left })
    }

    fn release(&mut self) {
        self.0.borrow_mut().huge = 0;
    }
}

/// A policy over two huge pages' memory, its memory, and the time.
struct Rig(HugePages, Rc<RefCell<Acts>>, f64);

fn rig() -> Rig {
    let acts = Rc::new(RefCell::new(Acts {
        small: 2 * CHUNK,
        ..Acts::default()
    }));
    let memory = Box::new(Memory(Rc::clone(&acts)));
    Rig(HugePages::new(memory, DWELL_S), acts, 0.0)
}

impl Rig {
    /// Windows of a second with a gain in percent and cycles per instruction; what was said.
    fn run(&mut self, windows: usize, percent: f64, cpi: f64) -> Vec<String> {
        let gain = Gain {
            percent,
            source: String::new(),
        };
        let mut said = Vec::new();
        for _ in 0..windows {
            self.2 += 1.0;
            said.extend(self.0.window(Some(&gain), Some(cpi), 1.0, self.2));
        }
        said
    }
}

#[test]
fn pages_become_huge_and_stay_where_cycles_do_not_rise() {
    let mut rig = rig();
    assert_eq!(rig.run(20, 0.9, 2.0), [""; 0]);
    assert_eq!(rig.1.borrow().looked, 0);
    let said = rig.run(3, 5.0, 2.0);
    assert_eq!(said, ["4 MiB of guests' memory are huge pages"]);
    assert_eq!(rig.run(100, 5.0, 1.9), [""; 0]);
    assert_eq!((rig.0.bytes(), rig.1.borrow().huge), (2 * CHUNK, 2 * CHUNK));
}

#[test]
fn pages_are_given_back_where_cycles_rise_and_stay_small_for_long() {
    let mut rig = rig();
    rig.run(5, 5.0, 2.0);
    assert_eq!(rig.1.borrow().huge, 2 * CHUNK);
    let said = rig.run(3, 5.0, 2.1);
    let told = "4 MiB of huge pages are given back: cycles per instruction rose from 2.00 to 2.10";
    assert_eq!(said, [told]);
    rig.run(600, 5.0, 2.0);
    assert_eq!((rig.0.bytes(), rig.1.borrow().huge), (0, 0));
    rig.run(100, 5.0, 2.0);
    assert_eq!(rig.1.borrow().huge, 2 * CHUNK);
}

#[test]
fn pages_in_use_stay_huge_and_are_asked_for_again() {
    let mut rig = rig();
    rig.run(5, 5.0, 2.0);
    rig.1.borrow_mut().in_use = CHUNK;
    let said = rig.run(3, 5.0, 2.1);
    let told = "2 MiB of huge pages are given back: cycles per instruction rose from 2.00 to 2.10; \
                2 MiB stay huge, their pages are in use";
    assert_eq!(said, [told]);
    assert_eq!((rig.0.bytes(), rig.1.borrow().huge), (CHUNK, CHUNK));
    (rig.1.borrow_mut().in_use, rig.1.borrow_mut().short) = (0, true);
    rig.run(1, 5.0, 2.1);
    assert_eq!((rig.0.bytes(), rig.1.borrow().huge), (0, 0));
}

#[test]
fn a_host_short_of_memory_gets_pages_back() {
    let mut rig = rig();
    rig.run(4, 5.0, 2.0);
    assert_eq!(rig.1.borrow().huge, CHUNK);
    rig.1.borrow_mut().short = true;
    let said = rig.run(9, 5.0, 2.0);
    assert_eq!(
        said,
        ["2 MiB of huge pages are given back: the host's memory is short"]
    );
    assert_eq!(rig.1.borrow().huge, 0);
}

#[test]
fn a_kernel_that_refuses_is_not_asked_in_each_window() {
    let mut rig = rig();
    rig.1.borrow_mut().refused = Some("Invalid argument");
    let said = rig.run(12, 5.0, 2.0);
    assert_eq!(said, ["no huge page could be made: Invalid argument"]);
    assert_eq!(rig.1.borrow().looked, 1);
}

proptest! {
    /// Whatever windows say and in whatever order: the policy knows what is huge because of it.
    #[test]
    fn it_knows_what_it_gave(
        windows in prop::collection::vec((0.0..9.0, 0.5..4.0, any::<bool>(), 0..20_u8), 0..200)
    ) {
        let mut rig = rig();
        for (percent, cpi, short, other) in windows {
            rig.1.borrow_mut().short = short;
            if other == 0 {
                rig.0.forget();
            }
            rig.run(1, percent, cpi);
            prop_assert_eq!(rig.0.bytes(), rig.1.borrow().huge);
        }
    }
}
