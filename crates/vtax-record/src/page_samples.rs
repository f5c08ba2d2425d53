//! Samples of a guest's page, put into the rows by time.

use std::collections::VecDeque;

use crate::difference::Total;
use crate::guest_page::{PageError, Reader};

/// How often the page is looked at.
pub const PERIOD: std::time::Duration = std::time::Duration::from_millis(10);
/// Samples that wait for a row at most; a machine that sleeps makes no rows.
const WAITING: usize = 4096;

/// Samples a page and gives each row what was counted since the row before that had a sample.
#[derive(Debug)]
pub struct PageSamples {
    reader: Reader,
    waiting: VecDeque<(u64, Vec<u64>)>,
    /// What has been given out, or where the counters began.
    given: Option<Vec<u64>>,
    totals: Vec<Total>,
    warning: Option<String>,
}

impl PageSamples {
    /// Begin with what the page says now.
    pub fn begin(reader: Reader) -> Result<Self, PageError> {
        let given = reader.sample()?.map(|sample| sample.values);
        Ok(Self {
            totals: vec![Total::default(); reader.names().len()],
            reader,
            waiting: VecDeque::new(),
            given,
            warning: None,
        })
    }

    /// Names of the columns.
    pub fn names(&self) -> &[String] {
        self.reader.names()
    }

    /// Look at the page; `now_ns` is the recorder's `CLOCK_MONOTONIC`.
    pub fn sample(&mut self, now_ns: u64) {
        match self.reader.sample() {
            Ok(Some(sample)) => {
                if self.waiting.len() == WAITING {
                    // The counters are cumulative: a later sample has what an earlier one had.
                    self.waiting.pop_front();
                }
                self.waiting.push_back((now_ns, sample.values));
            }
            Ok(None) => self.warn("the guest's page has other counters now; it was left there"),
            Err(error) => self.warn(&format!("the guest's page: {error}")),
        }
    }

    fn warn(&mut self, text: &str) {
        self.warning.get_or_insert_with(|| text.to_owned());
    }

    /// What was counted up to the newest sample before a row; rows come in the order of time.
    ///
    /// `None` for each counter when there is no new sample: what was counted is in a later row.
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
            // A counter that falls belongs to a publisher that began again.
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

    /// Sums of the columns.
    pub fn totals(&self) -> &[Total] {
        &self.totals
    }

    /// Why there are samples missing.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest_page::Publisher;

    #[test]
    fn each_count_is_in_one_row_or_in_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let publisher = Publisher::create(&path, &["app.x", "app.y"]).unwrap();
        publisher.publish(&[100, 0], 0);
        let mut samples = PageSamples::begin(Reader::open(&path).unwrap()).unwrap();
        for (at, value) in [(10, 103), (20, 104), (30, 110), (40, 111)] {
            publisher.publish(&[value, 5], 0);
            samples.sample(at);
        }
        assert_eq!(samples.up_to(5), [None, None]);
        assert_eq!(samples.up_to(25), [Some(4), Some(5)]);
        assert_eq!(samples.up_to(29), [None, None]);
        assert_eq!(samples.up_to(30), [Some(6), Some(0)]);
        assert_eq!((samples.totals()[0].sum, samples.rest()), (10, vec![1, 0]));
        // The publisher begins again.
        publisher.publish(&[2, 6], 0);
        samples.sample(50);
        assert_eq!(samples.up_to(60), [None, Some(1)]);
    }

    #[test]
    fn another_list_of_names_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let _first = Publisher::create(&path, &["app.x"]).unwrap();
        let mut samples = PageSamples::begin(Reader::open(&path).unwrap()).unwrap();
        let _second = Publisher::create(&path, &["app.z"]).unwrap();
        samples.sample(1);
        assert!(samples.warning().unwrap().contains("other counters"));
    }
}
