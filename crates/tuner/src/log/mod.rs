//! The log of a search: JSON lines, so that a killed search continues where it was.
//!
//! The first line is the [`Header`]. Each later line is written as soon as its content is known: a
//! kill loses at most the last line, which is dropped when it is incomplete. docs/tune.md describes
//! the fields.

mod difference;
mod record;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error as ThisError;

use crate::fields::fields;
use crate::statistics::Spread;
use record::{Line, Size, Timed, Trialled};

pub use difference::difference;
pub use record::{Header, Outcome, Start, StartSource};

/// The format's version, which changes when a program cannot read an older program's log.
pub const FORMAT: u32 = 1;
/// A log of a whole day is a tenth of this.
const LARGEST_BYTES: u64 = 64 << 20;

/// Why a log cannot be used.
#[derive(Debug, ThisError)]
pub enum LogError {
    /// The kernel refused something.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The log belongs to another processor, version or search.
    #[error("it belongs to another search: {0}")]
    Other(String),
    /// The log is too long, or not a file.
    #[error("it is not a file of at most {LARGEST_BYTES} bytes")]
    Large,
    /// A line does not belong to a log.
    #[error("line {0}: {1}")]
    Line(usize, String),
    /// A value has no JSON form.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// Results from before, and the file for new ones.
#[derive(Debug, Default)]
pub struct Log {
    file: Option<File>,
    outcomes: HashMap<String, Outcome>,
    spreads: HashMap<String, Spread>,
    start: Option<Start>,
    size: Option<usize>,
}

impl Log {
    /// A log that is not kept.
    pub fn none() -> Self {
        Self::default()
    }

    /// Begin a log, or continue an existing one.
    ///
    /// An incomplete last line is removed. Fails when the file is not a log, or the log belongs to
    /// another processor, version or search (the error names the difference), and when the file
    /// cannot be read or written.
    pub fn open(path: &Path, header: &Header) -> Result<Self, LogError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        let bytes = bounded(&mut file)?;
        let first = serde_json::to_string(&Line::Header(header.clone()))?;
        let (mut log, whole) = Self::read(&bytes, header)?;
        // An incomplete header must at least have the right beginning: the file may be anything
        // else.
        if whole == 0 && !first.as_bytes().starts_with(&bytes) {
            return Err(LogError::Line(1, "it is not the header of a log".into()));
        }
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        log.file = Some(file);
        if whole == 0 {
            log.append(&Line::Header(header.clone()))?;
        }
        Ok(log)
    }

    /// The complete lines of a log with this header, and their length in bytes.
    fn read(bytes: &[u8], header: &Header) -> Result<(Self, usize), LogError> {
        let mut log = Self::none();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let Some(end) = whole else {
            return Ok((log, 0));
        };
        for (at, line) in bytes[..end].split(|byte| *byte == b'\n').enumerate() {
            let wrong = |error: serde_json::Error| LogError::Line(at + 1, error.to_string());
            if at == 0 {
                same(&serde_json::from_slice(line).map_err(wrong)?, header)?;
            } else {
                let line = serde_json::from_slice(line).map_err(wrong)?;
                log.remember(line)
                    .map_err(|reason| LogError::Line(at + 1, reason))?;
            }
        }
        Ok((log, end + 1))
    }

    fn remember(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Header(_) => return Err("a second header".into()),
            Line::Start(start) => self.start = Some(start),
            Line::Size(Size { size }) => self.size = Some(size),
            Line::Trial(trial) => {
                let key = key(&trial.routine, &trial.fields);
                self.outcomes.insert(key, trial.outcome()?);
            }
            Line::Measured(timed) => {
                let key = key(&timed.routine, &timed.fields);
                self.spreads.insert(key, timed.spread());
            }
        }
        Ok(())
    }

    pub fn outcome<P: Serialize>(&self, routine: &str, candidate: &P) -> Option<Outcome> {
        self.outcomes
            .get(&key(routine, &fields(candidate)))
            .cloned()
    }

    /// The earlier measurement of a routine with these parameters.
    pub fn spread<P: Serialize>(&self, routine: &str, candidate: &P) -> Option<Spread> {
        self.spreads.get(&key(routine, &fields(candidate))).copied()
    }

    pub fn start(&self) -> Option<Start> {
        self.start
    }

    /// The recorded size of the timed problem.
    pub fn size(&self) -> Option<usize> {
        self.size
    }

    pub fn write_outcome<P: Serialize>(
        &mut self,
        routine: &str,
        candidate: &P,
        outcome: &Outcome,
    ) -> Result<(), LogError> {
        self.append(&Line::Trial(Trialled::new(
            routine,
            fields(candidate),
            outcome,
        )))
    }

    /// Write the measurement of a routine; returns what a later reading gives, which may differ in
    /// the last digit.
    pub fn write_spread<P: Serialize>(
        &mut self,
        routine: &str,
        candidate: &P,
        spread: &Spread,
    ) -> Result<Spread, LogError> {
        let timed = Timed::new(routine, fields(candidate), spread);
        let written = timed.spread();
        self.append(&Line::Measured(timed))?;
        Ok(written)
    }

    pub fn write_start(&mut self, start: Start) -> Result<(), LogError> {
        self.append(&Line::Start(start))
    }

    pub fn write_size(&mut self, size: usize) -> Result<(), LogError> {
        self.append(&Line::Size(Size { size }))
    }

    fn append(&mut self, line: &Line) -> Result<(), LogError> {
        if let Some(file) = &mut self.file {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            file.write_all(&text)?;
        }
        Ok(())
    }
}

fn bounded(file: &mut File) -> Result<Vec<u8>, LogError> {
    if !file.metadata()?.is_file() {
        return Err(LogError::Large);
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_BYTES {
        return Err(LogError::Large);
    }
    Ok(bytes)
}

fn same(found: &Value, header: &Header) -> Result<(), LogError> {
    let ours = serde_json::to_value(Line::Header(header.clone()))?;
    match difference("this", &ours, "the log", found) {
        Some(what) => Err(LogError::Other(what)),
        None => Ok(()),
    }
}

/// A text that identifies a routine and its fields, whatever their order.
fn key(routine: &str, fields: &Map<String, Value>) -> String {
    let each = fields
        .iter()
        .map(|(name, value)| format!(" {name}={value}"));
    let mut each: Vec<String> = each.collect();
    each.sort();
    format!("{routine}{}", each.concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::parameters::Level2;
    use crate::processor::Processor;
    use crate::search::race::Raced;
    use crate::vector::Vector;

    const AT: Level2 = Level2 {
        vector: Vector::Sse2,
        x_unroll: 2,
        y_unroll: 4,
    };

    fn header() -> Header {
        Header {
            format: FORMAT,
            agent: "1.0".into(),
            processor: Processor::this(),
            search: json!({"size": 1000}).as_object().unwrap().clone(),
        }
    }

    fn raced() -> Outcome {
        Outcome::Raced(Raced::start(12.5))
    }

    const START: Start = Start {
        l1_bytes: Some(48 << 10),
        l2_bytes: None,
        from: StartSource::Probes,
    };

    /// A log with a start, a size, a trial and a measurement.
    fn written(path: &Path) -> Vec<u8> {
        let mut log = Log::open(path, &header()).unwrap();
        log.write_start(START).unwrap();
        log.write_size(320).unwrap();
        log.write_outcome("dger", &AT, &raced()).unwrap();
        let spread = Spread::of(&[1.0, 2.0, 3.0]).unwrap();
        log.write_spread("dger", &AT, &spread).unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_was_written_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let bytes = written(&path);
        let log = Log::open(&path, &header()).unwrap();
        assert_eq!(
            (log.start(), log.size(), log.outcome("dger", &AT)),
            (Some(START), Some(320), Some(raced()))
        );
        assert_eq!(log.spread("dger", &AT).unwrap().runs, 3);
        assert_eq!(log.outcome("dgemv_n", &AT), None);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let text = String::from_utf8(bytes).unwrap();
        let trial: Value = serde_json::from_str(text.lines().nth(3).unwrap()).unwrap();
        assert_eq!(
            (&trial["XUNROLL"], &trial["MFLOP"]),
            (&json!(2), &json!(12500.0))
        );
    }

    #[test]
    fn any_cut_loses_one_line_and_the_log_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let bytes = written(&path);
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let mut log = Log::open(&path, &header()).unwrap();
            let whole = bytes[..length].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(log.outcome("dger", &AT).is_some(), whole >= 4, "{length}");
            let refused = Outcome::Rejected("wrong".into());
            log.write_outcome("sger", &AT, &refused).unwrap();
            let log = Log::open(&path, &header()).unwrap();
            assert_eq!(log.outcome("sger", &AT), Some(refused), "{length}");
        }
    }

    #[test]
    fn a_log_of_another_search_is_refused_with_the_difference() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let bytes = written(&path);
        let mut other = header();
        other.processor.family += 1;
        let error = Log::open(&path, &other).unwrap_err().to_string();
        let family = header().processor.family;
        let said = format!(
            "processor.family: this has {}, the log {family}",
            family + 1
        );
        assert!(error.contains(&said), "{error}");
        let mut other = header();
        other.processor.features.push("amx".into());
        let error = Log::open(&path, &other).unwrap_err().to_string();
        assert!(
            error.contains("processor.features: only this has amx"),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn a_file_that_is_no_log_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for text in [
            "my letter",
            "my letter\n",
            "{}\n",
            "\n",
            "{\"record\":\"header\"}\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(Log::open(&path, &header()).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let missing = Log::open(&folder.path().join("a/b"), &header());
        assert!(matches!(missing, Err(LogError::File(_))));
        assert!(Log::open(folder.path(), &header()).is_err());
    }

    #[test]
    fn what_is_longer_than_any_log_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        File::create(&path)
            .unwrap()
            .set_len(LARGEST_BYTES + 1)
            .unwrap();
        assert!(matches!(Log::open(&path, &header()), Err(LogError::Large)));
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_answered(
            bytes in prop::collection::vec(any::<u8>(), 0..300), after in any::<bool>()
        ) {
            let mut text = Vec::new();
            if after {
                text = serde_json::to_vec(&Line::Header(header())).unwrap();
                text.push(b'\n');
            }
            text.extend(bytes);
            let _ = Log::read(&text, &header());
        }

        #[test]
        fn foreign_records_are_answered(
            record in "trial|measured|size|start|header|other",
            mflop in prop::option::of(any::<f64>()),
            verdict in "better|slower|x",
        ) {
            let line = json!({"record": record, "ROUTINE": "dger", "MFLOP": mflop,
                "runs": 1, "ratio": 1.0, "verdict": verdict, "size": 3, "l1_bytes": 1, "l2_bytes": null,
                "from": "claimed"});
            let mut text = serde_json::to_vec(&Line::Header(header())).unwrap();
            text.extend(format!("\n{line}\n").bytes());
            let _ = Log::read(&text, &header());
        }
    }
}
