//! A page of counters that somebody else publishes (docs/record.md), such as an emulator's
//! model of a processor. Its counters are named `model.*`, and so are the results.

use std::path::PathBuf;

use vtax_sys::guest_page::Reader;

use super::{CountedSource, Quantity, Sensor, Values};

const PREFIX: &str = "model.";

#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    reader: Option<Reader>,
}

impl Page {
    /// The page in this file, which is opened when it is read.
    pub fn new(path: PathBuf) -> Self {
        Self { path, reader: None }
    }

    fn source(&mut self) -> Result<CountedSource, String> {
        let opened = match self.reader.take() {
            Some(reader) => Ok(reader),
            None => Reader::open(&self.path),
        };
        let mut reader = opened.map_err(|error| error.to_string())?;
        let mut sample = reader.sample_patiently();
        if matches!(sample, Ok(None)) {
            reader.learn().map_err(|error| error.to_string())?;
            sample = reader.sample_patiently();
        }
        let sample = sample
            .map_err(|error| error.to_string())?
            .ok_or("its list of counters changes all the time")?;
        let mut counts = Values::default();
        for (name, value) in reader.names().iter().zip(sample.values) {
            if let Some(quantity) = quantity(name) {
                counts.set(quantity, value);
            }
        }
        // A page that replaced this one is found in the next window.
        let replaced = is_replaced(&self.path, &reader);
        self.reader = (!replaced).then_some(reader);
        Ok(CountedSource {
            name: self.path.display().to_string(),
            counts,
            publication: Some(sample.sequence),
        })
    }
}

impl Sensor for Page {
    fn name(&self) -> &'static str {
        "counter page"
    }

    fn is_model(&self) -> bool {
        true
    }

    fn read(&mut self) -> Result<Vec<CountedSource>, String> {
        let path = self.path.display().to_string();
        let source = self.source().map_err(|reason| format!("{path}: {reason}"));
        source.map(|source| vec![source])
    }
}

/// The quantity with this counter's name; other counters are ignored.
fn quantity(name: &str) -> Option<Quantity> {
    let name = name.strip_prefix(PREFIX)?;
    let mut all = Quantity::ALL.into_iter();
    all.find(|quantity| quantity.name() == name)
}

/// Is there no file of this name, or another file than the opened one?
fn is_replaced(path: &std::path::Path, reader: &Reader) -> bool {
    use std::os::fd::AsFd;

    let now = nix::sys::stat::stat(path);
    let opened = nix::sys::stat::fstat(reader.as_fd());
    match (now, opened) {
        (Ok(now), Ok(opened)) => (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino),
        _ => true,
    }
}
