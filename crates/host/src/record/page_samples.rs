//! Samples of counters that others publish, added to the rows by time.

use std::collections::{BTreeMap, VecDeque};

use vtax_sys::clock::monotonic_ns;
use vtax_sys::guest_page::applications::Collector;
use vtax_sys::guest_page::{PageError, Reader};

use crate::record::difference::Total;
use crate::record::skew::Bounds;

/// The time between two looks at a page.
pub const PERIOD: std::time::Duration = std::time::Duration::from_millis(10);
/// The most samples that wait for a row; an idle machine writes no rows.
const WAITING: usize = 4096;
/// After this many successive last looks (a second) that find the publisher in the middle of a
/// publication, the user is warned. The publisher's virtual CPU may lose its CPU there for some
/// time.
const TORN: u32 = 100;

/// Samples counters, and gives each row what was counted since the last row with a sample.
#[derive(Debug)]
pub struct PageSamples {
    origin: Origin,
    names: Vec<String>,
    waiting: VecDeque<(u64, Vec<u64>)>,
    /// The values that were given to rows so far, or the start values.
    given: Option<Vec<u64>>,
    totals: Vec<Total>,
    torn: u32,
    warning: Option<String>,
    bounds: Bounds,
}

/// The publisher.
#[derive(Debug)]
enum Origin {
    /// A guest, or any program with its own page.
    Page(Reader),
    /// The applications of this machine.
    Applications(Collector),
}

impl PageSamples {
    /// Begin with the current values of a page.
    ///
    /// Fails when the page cannot be read, or is not of this version.
    pub fn page(mut reader: Reader) -> Result<Self, PageError> {
        let given = reader.sample_patiently()?.map(|sample| sample.values);
        let names = reader.names().to_vec();
        Ok(Self::new(Origin::Page(reader), names, given))
    }

    /// The same samples with the guest's number in their names, from 0: `guest.0.pgfault`,
    /// `guest.0.app.requests`.
    #[must_use]
    pub fn of_guest(mut self, number: usize) -> Self {
        for name in &mut self.names {
            let own = name.strip_prefix("guest.").unwrap_or(name);
            *name = format!("guest.{number}.{own}");
        }
        self
    }

    /// Begin with the current values of this machine's applications; `names`: whole names of
    /// counters, which need not exist yet. `None`: all existing counters.
    ///
    /// Fails when the page cannot be read, or is not of this version.
    pub fn applications(
        mut collector: Collector,
        names: Option<Vec<String>>,
    ) -> Result<Self, PageError> {
        let sums = collector
            .collect()
            .map_err(|error| PageError::File(error.to_string()))?;
        let names = names.unwrap_or_else(|| sums.keys().cloned().collect());
        let given = pick(sums, &names);
        Ok(Self::new(
            Origin::Applications(collector),
            names,
            Some(given),
        ))
    }

    fn new(origin: Origin, names: Vec<String>, given: Option<Vec<u64>>) -> Self {
        Self {
            totals: vec![Total::default(); names.len()],
            origin,
            names,
            waiting: VecDeque::new(),
            given,
            torn: 0,
            warning: None,
            bounds: Bounds::default(),
        }
    }

    /// Names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Read the counters.
    pub fn sample(&mut self) {
        let before_ns = monotonic_ns();
        let values = match &mut self.origin {
            Origin::Applications(collector) => match collector.collect() {
                Ok(sums) => Some(pick(sums, &self.names)),
                Err(error) => {
                    self.warn(&format!("the counters of applications: {error}"));
                    None
                }
            },
            Origin::Page(reader) => {
                let sample = reader.sample();
                self.look(before_ns, sample)
            }
        };
        let Some(values) = values else { return };
        if self.waiting.len() == WAITING {
            // The counters are cumulative: a later sample includes the counts of earlier ones.
            self.waiting.pop_front();
        }
        self.waiting.push_back((monotonic_ns(), values));
    }

    fn look(
        &mut self,
        before_ns: u64,
        sample: Result<Option<vtax_sys::guest_page::Sample>, PageError>,
    ) -> Option<Vec<u64>> {
        self.torn = if sample == Err(PageError::Torn) {
            self.torn + 1
        } else {
            0
        };
        match sample {
            Ok(Some(sample)) => {
                self.bounds
                    .take(before_ns, monotonic_ns(), sample.sequence, sample.time_ns);
                return Some(sample.values);
            }
            Ok(None) => self.warn("the guest's page has other counters now; it was left there"),
            // A publisher that goes on later has lost nothing: its counts are sums.
            Err(PageError::Torn) => {}
            Err(error) => self.warn(&format!("the guest's page: {error}")),
        }
        None
    }

    fn warn(&mut self, text: &str) {
        self.warning.get_or_insert_with(|| text.to_owned());
    }

    /// What was counted up to the newest sample before a row; rows come in the order of time.
    ///
    /// `None` for each counter when there is no new sample: the counts go into a later row.
    pub fn up_to(&mut self, time_ns: u64) -> Vec<Option<u64>> {
        let mut newest = None;
        while self.waiting.front().is_some_and(|(at, _)| *at <= time_ns) {
            newest = self.waiting.pop_front();
        }
        let Some((_, values)) = newest else {
            return vec![None; self.totals.len()];
        };
        let before = self.given.replace(values.clone()).unwrap_or_default();
        let mut differences = Vec::with_capacity(values.len());
        for (index, (value, total)) in values.iter().zip(&mut self.totals).enumerate() {
            // A counter that falls belongs to a publisher that started again.
            let difference = before.get(index).and_then(|old| value.checked_sub(*old));
            if let Some(difference) = difference {
                total.sum += difference;
                total.rows += 1;
            }
            differences.push(difference);
        }
        differences
    }

    /// What was counted after the last row, for each column.
    pub fn rest(&self) -> Vec<u64> {
        let last = self.waiting.back().map(|(_, values)| values);
        let given = self.given.as_ref();
        (0..self.totals.len())
            .map(|index| {
                let last = last.and_then(|values| values.get(index));
                let given = given.and_then(|values| values.get(index));
                last.zip(given)
                    .map_or(0, |(last, given)| last.saturating_sub(*given))
            })
            .collect()
    }

    /// The counters' values in the last sample; empty when there was none.
    pub fn last(&self) -> BTreeMap<&str, u64> {
        let waiting = self.waiting.back().map(|(_, values)| values);
        let values = waiting.or(self.given.as_ref());
        let names = self.names.iter().map(String::as_str);
        names.zip(values.into_iter().flatten().copied()).collect()
    }

    /// Sums of the columns.
    pub fn totals(&self) -> &[Total] {
        &self.totals
    }

    /// What the page shows of the guest's clock; `None`: that clock is this machine's own.
    pub fn bounds(&self) -> Option<&Bounds> {
        matches!(self.origin, Origin::Page(_)).then_some(&self.bounds)
    }

    /// Why samples are missing.
    pub fn warning(&self) -> Option<String> {
        let torn = (self.torn >= TORN).then(|| format!("the guest's page: {}", PageError::Torn));
        self.warning.clone().or(torn)
    }
}

/// The values of these names; a missing counter has counted nothing yet.
fn pick(sums: &BTreeMap<String, u64>, names: &[String]) -> Vec<u64> {
    let value = |name| sums.get(name).copied().unwrap_or(0);
    names.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_sys::guest_page::Publisher;

    #[test]
    fn each_count_is_in_one_row_or_in_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let mut publisher = Publisher::create(&path, &["app.x", "app.y"]).unwrap();
        publisher.publish(&[100, 0]).unwrap();
        let mut samples = PageSamples::page(Reader::open(&path).unwrap()).unwrap();
        let mut at = vec![monotonic_ns()];
        for value in [103, 104, 110, 111] {
            publisher.publish(&[value, 5]).unwrap();
            samples.sample();
            at.push(monotonic_ns());
        }
        assert_eq!(samples.up_to(at[0]), [None, None]);
        assert_eq!(samples.up_to(at[2]), [Some(4), Some(5)]);
        assert_eq!(samples.up_to(at[2]), [None, None]);
        assert_eq!(samples.up_to(at[3]), [Some(6), Some(0)]);
        assert_eq!((samples.totals()[0].sum, samples.rest()), (10, vec![1, 0]));
        assert_eq!(
            samples.last(),
            BTreeMap::from([("app.x", 111), ("app.y", 5)])
        );
        // This machine's own clock: the offset is 0.
        let skew = samples.bounds().unwrap().skew().unwrap();
        assert!(skew.offset_ns.unsigned_abs() <= skew.within_ns, "{skew:?}");
        // The publisher starts again.
        publisher.publish(&[2, 6]).unwrap();
        samples.sample();
        assert_eq!(samples.up_to(u64::MAX), [None, Some(1)]);
    }

    #[test]
    fn guests_are_told_apart_by_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let mut publisher = Publisher::create(&path, &["guest.pgfault", "app.x"]).unwrap();
        publisher.publish(&[1, 2]).unwrap();
        let samples = PageSamples::page(Reader::open(&path).unwrap()).unwrap();
        let samples = samples.of_guest(3);
        assert_eq!(samples.names(), ["guest.3.pgfault", "guest.3.app.x"]);
        let last = BTreeMap::from([("guest.3.app.x", 2), ("guest.3.pgfault", 1)]);
        assert_eq!(samples.last(), last);
    }

    #[test]
    fn another_list_of_names_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let _first = Publisher::create(&path, &["app.x"]).unwrap();
        let mut samples = PageSamples::page(Reader::open(&path).unwrap()).unwrap();
        let _second = Publisher::create(&path, &["app.z"]).unwrap();
        samples.sample();
        assert!(samples.warning().unwrap().contains("other counters"));
    }

    #[test]
    fn applications_may_register_later() {
        let folder = tempfile::tempdir().unwrap();
        let collector = Collector::begin(folder.path()).unwrap();
        let names = Some(vec!["app.x".to_owned()]);
        let mut samples = PageSamples::applications(collector, names).unwrap();
        let mut publisher =
            Publisher::create(&folder.path().join("1.page"), &["app.w", "app.x"]).unwrap();
        publisher.publish(&[1, 7]).unwrap();
        samples.sample();
        assert_eq!(samples.up_to(u64::MAX), [Some(7)]);
        assert!(samples.bounds().is_none());
    }
}
