//! The files of the rows, with the columns that a trace turns out to have.

use std::path::PathBuf;

use super::columns::{COLUMNS, OTHERS};
use super::events::{EVENTS, Found};
use super::timeline::TimedRow;
use crate::record::files::{self, Folder};
use crate::record::parquet;
use crate::record::stream::{self, Batch, Lengths, Stream};
use vtax_sys::terminal::Error;

/// The most values that wait before they are written to the file, 2 MiB.
const BATCH_VALUES: usize = 1 << 17;

/// Writes rows, which may have more and more columns.
pub(super) struct Writer {
    stream: Stream,
    path: PathBuf,
    known: [bool; COLUMNS],
    /// How many columns of what is found the stream has.
    found: usize,
    waiting: Vec<TimedRow>,
}

impl Writer {
    pub(super) fn begin(folder: &Folder, known: [bool; COLUMNS]) -> Result<Self, Error> {
        let path = folder.stream();
        let stream = Stream::create(&path, &stream::schema(&names(known, &[])));
        let stream = stream.map_err(|error| files::failed(&path, error))?;
        Ok(Self {
            stream,
            path,
            known,
            found: 0,
            waiting: Vec::new(),
        })
    }

    pub(super) fn put(&mut self, row: TimedRow, found: &[Found]) -> Result<(), Error> {
        self.waiting.push(row);
        if self.waiting.len() * (COLUMNS + found.len()) >= BATCH_VALUES {
            self.flush(found)?;
        }
        Ok(())
    }

    /// Write what waits. The file gets the columns that were found since the last time.
    fn flush(&mut self, found: &[Found]) -> Result<(), Error> {
        let failed = |error| files::failed(&self.path, error);
        let schema = stream::schema(&names(self.known, found));
        if found.len() > self.found {
            self.stream = stream::widened(&self.path, &schema).map_err(failed)?;
            self.found = found.len();
        }
        let mut batch = Batch::new(schema, Lengths::default());
        for (mut interval, tsc) in self.waiting.drain(..) {
            // What was found later did not happen in an earlier row.
            interval.columns.resize(COLUMNS + found.len(), Some(0));
            let mut known = self.known.into_iter();
            interval.columns.retain(|_| known.next().unwrap_or(true));
            batch.push(&interval, tsc);
        }
        self.stream.flush(&mut batch).map_err(failed)
    }

    pub(super) fn finish(mut self, folder: &Folder, found: &[Found]) -> Result<u64, Error> {
        self.flush(found)?;
        let ended = self.stream.finish();
        ended.map_err(|error| files::failed(&self.path, error))?;
        let written = parquet::finish(&folder.stream(), &folder.rows(), &[]);
        written
            .map(|written| written.rows)
            .map_err(|error| files::failed(&folder.rows(), error))
    }
}

/// The columns of the rows, without those of classes that were not traced.
fn names(known: [bool; COLUMNS], found: &[Found]) -> Vec<String> {
    let fixed = fixed().zip(known).filter(|(_, known)| *known);
    let fixed = fixed.map(|((name, ..), _)| name.to_owned());
    fixed
        .chain(found.iter().map(|found| found.name()))
        .collect()
}

/// Name, description and unit of each column that every trace has.
pub(super) fn fixed() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let counted = EVENTS
        .iter()
        .map(|event| (event.name, event.about, "count"));
    counted.chain(OTHERS)
}

#[cfg(test)]
mod tests {
    use arrow_array::UInt64Array;

    use super::super::timeline::Timeline;
    use super::super::trace::Records;
    use super::super::trace::encoder::Encoder;
    use super::*;
    use crate::record::stream::Batches;

    #[test]
    fn a_column_that_comes_late_is_zero_before() {
        const MS: u64 = 1_000_000;
        let mut file = Encoder::default();
        file.cpu(0);
        let rows = u64::try_from(BATCH_VALUES / COLUMNS + 10).unwrap();
        for step in 0..rows {
            file.record(0x81001, Some(MS * step), &[]);
        }
        file.record(0x2abcd, Some(MS * rows), &[]);
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::create(folder.path()).unwrap();
        let mut writer = Writer::begin(&folder, [true; COLUMNS]).unwrap();
        let mut timeline = Timeline::new(1000 * MS, MS, 0, 0);
        let mut records = Records::new(&file.0[..]);
        while let Some(record) = records.next_record().unwrap() {
            if let Some(row) = timeline.take(&record) {
                writer.put(row, &timeline.totals().found).unwrap();
            }
        }
        let before = Batches::open(&folder.stream()).unwrap().count();
        assert!(before > 0);
        for row in timeline.finish() {
            writer.put(row, &timeline.totals().found).unwrap();
        }
        writer.flush(&timeline.totals().found).unwrap();
        let mut values = Vec::new();
        for batch in Batches::open(&folder.stream()).unwrap() {
            let column = batch.column_by_name("xen.0x2abcd").unwrap();
            let column = column.as_any().downcast_ref::<UInt64Array>().unwrap();
            values.extend(column.iter().flatten());
        }
        assert_eq!(values.pop(), Some(1));
        assert_eq!(values, vec![0; usize::try_from(rows).unwrap()]);
    }
}
