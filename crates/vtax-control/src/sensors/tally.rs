//! From cumulative counts of sources that come and go to what happened in a window.

use std::collections::BTreeMap;
use std::fmt;

use super::{Quantity, Source, Values};

/// Windows without a publication after which a page of counters is stuck.
const STUCK_WINDOWS: u32 = 3;

/// Why a sensor's counts of a window are not to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The sensor.
    pub sensor: String,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What can be wrong with a sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// It cannot be read, for this reason.
    Lost(String),
    /// A source's counter is lower than it was.
    Backwards(String, Quantity),
    /// A source has published nothing for so many windows.
    Stuck(String, u32),
    /// There is no earlier count yet.
    First,
}

impl Fault {
    /// A sensor that cannot be read.
    pub fn lost(sensor: &str, reason: String) -> Self {
        Self {
            sensor: sensor.to_owned(),
            kind: FaultKind::Lost(reason),
        }
    }

    /// The same, of the sensor of that name.
    #[must_use]
    pub fn of(mut self, sensor: &str) -> Self {
        sensor.clone_into(&mut self.sensor);
        self
    }

    fn kind(kind: FaultKind) -> Self {
        Self {
            sensor: String::new(),
            kind,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sensor = &self.sensor;
        match &self.kind {
            FaultKind::Lost(reason) => write!(formatter, "sensor {sensor} lost: {reason}"),
            FaultKind::Backwards(source, quantity) => {
                let name = quantity.name();
                write!(
                    formatter,
                    "sensor {sensor}: {name} of {source} went backwards"
                )
            }
            FaultKind::Stuck(source, windows) => write!(
                formatter,
                "sensor {sensor} is stuck: {source} has published nothing for {windows} windows"
            ),
            FaultKind::First => write!(formatter, "sensor {sensor} has counted no window yet"),
        }
    }
}

#[derive(Debug, Clone)]
struct Known {
    counts: Values<u64>,
    publication: Option<u64>,
    unpublished: u32,
}

/// The counts of the last window.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    last: Option<BTreeMap<String, Known>>,
}

impl Tally {
    /// Begin anew.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// What happened since the last call. What a source that came has counted before is left out,
    /// and so is what one that went had counted since.
    ///
    /// Fails when there was no earlier call, when a counter went backwards, and when a source that
    /// publishes has not done so for three windows. In all cases the next window counts from here.
    pub fn advance(&mut self, sources: Vec<Source>) -> Result<Values<f64>, Fault> {
        let before = self.last.take();
        let mut now = BTreeMap::new();
        let mut counts = Values::default();
        let mut fault = None;
        for source in sources {
            let earlier = before.as_ref().and_then(|all| all.get(&source.name));
            let known = Known::of(&source, earlier);
            fault = fault.or_else(|| known.fault(&source.name, earlier));
            if let Some(earlier) = earlier {
                known.add_since(earlier, &mut counts);
            }
            now.insert(source.name, known);
        }
        let first = before.is_none();
        self.last = Some(now);
        match fault {
            Some(kind) => Err(Fault::kind(kind)),
            None if first => Err(Fault::kind(FaultKind::First)),
            None => Ok(counts),
        }
    }
}

impl Known {
    fn of(source: &Source, earlier: Option<&Self>) -> Self {
        let same = source.publication.is_some()
            && earlier.is_some_and(|earlier| earlier.publication == source.publication);
        let before = earlier.map_or(0, |earlier| earlier.unpublished);
        Self {
            counts: source.counts,
            publication: source.publication,
            unpublished: if same { before.saturating_add(1) } else { 0 },
        }
    }

    fn fault(&self, name: &str, earlier: Option<&Self>) -> Option<FaultKind> {
        if self.unpublished >= STUCK_WINDOWS {
            return Some(FaultKind::Stuck(name.to_owned(), self.unpublished));
        }
        let back = self.counts.iter().find(|(quantity, now)| {
            let before = earlier.and_then(|earlier| earlier.counts.get(*quantity));
            before.is_some_and(|before| *now < before)
        });
        back.map(|(quantity, _)| FaultKind::Backwards(name.to_owned(), quantity))
    }

    fn add_since(&self, earlier: &Self, sums: &mut Values<f64>) {
        for (quantity, now) in self.counts.iter() {
            if let Some(before) = earlier.counts.get(quantity) {
                let since = now.saturating_sub(before) as f64;
                sums.set(quantity, sums.get(quantity).unwrap_or(0.0) + since);
            }
        }
    }
}
