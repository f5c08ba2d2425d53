//! The quantities that are counted, the sensors that count them, and how they are added up.

pub mod cr3;
pub mod kvm;
pub mod page;
pub mod perf;
pub mod perf_group;
mod tally;

use std::collections::BTreeSet;

use vtax_sys::tree::Tree;

pub use tally::{Fault, FaultKind, Tally};

/// Quantities for policies and people; each is cumulative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Instructions retired in guests.
    Instructions,
    /// Cycles in guests, and in the kernel for their virtual CPUs.
    Cycles,
    /// Walks of page tables that misses of the data TLB in guests began.
    TlbMisses,
    WalkCycles,
    /// Cycles of the VMM for paging exits.
    VmmCycles,
    /// Exits for paging, without those for CR3.
    PagingExits,
    /// Exits for loads of CR3.
    Cr3Exits,
    Exits,
}

impl Quantity {
    /// All quantities, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Instructions,
        Self::Cycles,
        Self::TlbMisses,
        Self::WalkCycles,
        Self::VmmCycles,
        Self::PagingExits,
        Self::Cr3Exits,
        Self::Exits,
    ];

    /// The name in lines, metrics and counter pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::TlbMisses => "tlb_misses",
            Self::WalkCycles => "walk_cycles",
            Self::VmmCycles => "vmm_cycles",
            Self::PagingExits => "paging_exits",
            Self::Cr3Exits => "cr3_exits",
            Self::Exits => "exits",
        }
    }
}

/// A value for each quantity; `None`: it is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Values<T>([Option<T>; Quantity::ALL.len()]);

impl<T: Copy> Values<T> {
    /// One value.
    pub fn get(&self, quantity: Quantity) -> Option<T> {
        self.0.get(quantity as usize).copied().flatten()
    }

    pub fn set(&mut self, quantity: Quantity, value: T) {
        if let Some(place) = self.0.get_mut(quantity as usize) {
            *place = Some(value);
        }
    }

    /// These values, with one value set.
    #[must_use]
    pub fn with(mut self, quantity: Quantity, value: T) -> Self {
        self.set(quantity, value);
        self
    }

    /// The quantities that are counted, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Quantity, T)> + '_ {
        let pairs = Quantity::ALL.into_iter().zip(self.0);
        pairs.filter_map(|(quantity, value)| Some((quantity, value?)))
    }
}

/// The cumulative counts of one source: a guest, a thread, a page.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedSource {
    /// Its name: the same name means the same counter.
    pub name: String,
    pub counts: Values<u64>,
    /// Changes with each publication of the counts; `None`: the counts are always current.
    pub publication: Option<u64>,
}

/// A source of counts.
pub trait Sensor {
    /// The name in faults.
    fn name(&self) -> &'static str;

    /// The guests that the sensor found at its last reading; `None`: it does not know guests. When
    /// the guests have changed, its counts belong to no window.
    fn guests(&self) -> Option<&BTreeSet<String>> {
        None
    }

    /// Does it count what a model says instead of what hardware did?
    fn is_model(&self) -> bool {
        false
    }

    /// Must a policy wait while this sensor has no counts?
    fn is_needed(&self) -> bool {
        true
    }

    /// The current counts of all its sources.
    ///
    /// Fails with the reason when they cannot be read: the sensor is then lost until it can be read
    /// again.
    fn read(&mut self) -> Result<Vec<CountedSource>, String>;

    /// Give up what would hinder a switch: references to virtual machines.
    fn let_go(&mut self) {}
}

/// What happened in a window, all guests together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// The window's length; 0: this is the first window, and nothing is counted.
    pub seconds: f64,
    pub counts: Values<f64>,
    /// The quantities that a model counted.
    pub modelled: Vec<Quantity>,
    /// The number of KVM guests.
    pub guests: usize,
    /// Sensors that a policy needs, and whose counts must not be used.
    pub faults: Vec<Fault>,
    /// Other events worth reporting.
    pub events: Vec<String>,
}

impl Step {
    /// A rate per second; `None`: the quantity is not counted.
    pub fn rate(&self, quantity: Quantity) -> Option<f64> {
        let count = self.counts.get(quantity)?;
        (self.seconds > 0.0).then(|| count / self.seconds)
    }

    /// The name in the output, which says so where a model counted.
    pub fn name(&self, quantity: Quantity) -> String {
        let model = if self.modelled.contains(&quantity) {
            "model."
        } else {
            ""
        };
        format!("{model}{}", quantity.name())
    }
}

/// All sensors; where two count the same quantity, the first sensor's counts are used.
pub struct Sensors {
    all: Vec<(Box<dyn Sensor>, Tally)>,
    last_s: Option<f64>,
    guests: Option<BTreeSet<String>>,
    /// What sensors that are not needed lack, as far as it was said.
    said: BTreeSet<String>,
}

impl std::fmt::Debug for Sensors {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.all.iter().map(|(sensor, _)| sensor.name()).collect();
        formatter.debug_tuple("Sensors").field(&names).finish()
    }
}

impl Sensors {
    pub fn new(sensors: Vec<Box<dyn Sensor>>) -> Self {
        let with_tally = |sensor| (sensor, Tally::default());
        Self {
            all: sensors.into_iter().map(with_tally).collect(),
            last_s: None,
            guests: None,
            said: BTreeSet::new(),
        }
    }

    /// The sensors of a machine: KVM's counters, guests' loads of CR3, and either pages of counters
    /// or perf.
    pub fn of(tree: &Tree, pages: &[std::path::PathBuf], events: Option<perf::Events>) -> Self {
        let mut sensors: Vec<Box<dyn Sensor>> = vec![
            Box::new(kvm::Kvm::new(tree.clone())),
            Box::new(cr3::Cr3::new(tree.clone())),
        ];
        for page in pages {
            sensors.push(Box::new(page::Page::new(page.clone())));
        }
        if let Some(events) = events.filter(|_| pages.is_empty()) {
            sensors.push(Box::new(perf::Perf::new(tree.clone(), events)));
        }
        Self::new(sensors)
    }

    /// What happened since the last call; `now_s` is the current time in seconds, of a clock that
    /// never goes back.
    pub fn step(&mut self, now_s: f64) -> Step {
        let begun = self.last_s.replace(now_s);
        let mut step = Step {
            seconds: begun.map_or(0.0, |begun| (now_s - begun).max(0.0)),
            ..Step::default()
        };
        for (sensor, tally) in &mut self.all {
            let model = sensor.is_model();
            let read = sensor.read();
            if let Some(guests) = sensor.guests()
                && notice(&mut self.guests, guests, &mut step)
            {
                tally.forget();
            }
            let read = match read {
                Ok(sources) => tally.advance(sources),
                Err(reason) => {
                    tally.forget();
                    Err(Fault::lost(sensor.name(), reason))
                }
            };
            match read {
                Ok(counts) => add(&mut step, &counts, model),
                Err(fault) if sensor.is_needed() => step.faults.push(fault.of(sensor.name())),
                Err(fault) => {
                    let fault = fault.of(sensor.name());
                    if fault.kind != FaultKind::First && self.said.insert(fault.to_string()) {
                        step.events.push(format!("decided without it: {fault}"));
                    }
                }
            }
        }
        step
    }

    /// Start over: earlier counts belong to no window.
    pub fn restart(&mut self) {
        self.last_s = None;
        self.guests = None;
        for (sensor, tally) in &mut self.all {
            sensor.let_go();
            tally.forget();
        }
    }
}

/// Report which guests came and went; true if any did.
fn notice(known: &mut Option<BTreeSet<String>>, now: &BTreeSet<String>, step: &mut Step) -> bool {
    step.guests = now.len();
    let Some(before) = known.as_ref() else {
        *known = Some(now.clone());
        return false;
    };
    if before == now {
        return false;
    }
    let gone = before.difference(now);
    step.events
        .extend(gone.map(|name| format!("guest {name} is gone")));
    let came = now.difference(before);
    step.events
        .extend(came.map(|name| format!("guest {name} came")));
    *known = Some(now.clone());
    true
}

fn add(step: &mut Step, counts: &Values<f64>, model: bool) {
    for (quantity, value) in counts.iter() {
        if step.counts.get(quantity).is_none() {
            step.counts.set(quantity, value);
            if model {
                step.modelled.push(quantity);
            }
        }
    }
}

#[cfg(test)]
mod tests;
