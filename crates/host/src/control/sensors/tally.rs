//! Turns cumulative counts of sources that come and go into the counts of a window.

use std::collections::BTreeMap;
use std::fmt;

use super::{CountedSource, Quantity, Values};

/// A page of counters is stuck after this many windows without a publication.
const STUCK_WINDOWS: u32 = 3;

/// Why a sensor's counts of a window must not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub sensor: String,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What can be wrong with a sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The sensor cannot be read, for this reason.
    Lost(String),
    /// A source's counter is lower than it was.
    Backwards(String, Quantity),
    /// A source has published nothing for this many windows.
    Stuck(String, u32),
    /// There is no earlier count yet.
    First,
}

impl Fault {
    /// The fault of a sensor that cannot be read.
    pub fn lost(sensor: &str, reason: String) -> Self {
        Self {
            sensor: sensor.to_owned(),
            kind: FaultKind::Lost(reason),
        }
    }

    /// The fault, for the sensor of this name.
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
    /// Start over: forget the counts of the last window.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// What happened since the last call. Counts of a new source from before are left out, and so
    /// are counts of a source that disappeared.
    ///
    /// Fails when there was no earlier call, when a counter went backwards, and when a publishing
    /// source has published nothing for three windows. In all cases the next window counts from
    /// here.
    pub fn advance(&mut self, sources: Vec<CountedSource>) -> Result<Values<f64>, Fault> {
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
    fn of(source: &CountedSource, earlier: Option<&Self>) -> Self {
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
