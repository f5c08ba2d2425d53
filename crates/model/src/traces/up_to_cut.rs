//! A trace whose file was cut, read up to the cut: what a killed recorder left is worth simulating.

use crate::error::ModelError;
use crate::limits::Limits;
use crate::step::{Step, StepSource};

use crate::traces::error::Fault;
use crate::traces::trace::Trace;

/// A trace that ends where its file was cut, if anything was before the cut.
pub struct UpToCut {
    trace: Trace,
    delivered: bool,
    cut: Option<String>,
}

impl UpToCut {
    pub fn new(trace: Trace) -> Self {
        Self {
            trace,
            delivered: false,
            cut: None,
        }
    }

    /// Where the file was cut, and what is missing; `None`: nothing has been missing so far.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}

impl StepSource for UpToCut {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        if self.cut.is_some() {
            return Ok(None);
        }
        match self.trace.step() {
            Ok(step) => {
                self.delivered = true;
                Ok(step)
            }
            Err(error) if self.delivered && matches!(error.fault, Fault::Truncated { .. }) => {
                self.cut = Some(error.fault.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn limits(&self) -> Limits {
        Limits::TRACE
    }

    fn interval(&self) -> Option<u64> {
        self.trace.interval()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::traces::open;

    fn steps(bytes: &[u8]) -> (usize, Result<Option<String>, String>) {
        let trace = match open(Box::new(Cursor::new(bytes.to_vec())), "t") {
            Ok(trace) => trace,
            Err(error) => return (0, Err(error.to_string())),
        };
        let mut source = UpToCut::new(trace);
        let mut count = 0;
        loop {
            match source.next_step() {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, Ok(source.cut().map(str::to_owned))),
                Err(error) => return (count, Err(error.to_string())),
            }
        }
    }

    #[test]
    fn records_before_the_cut_count_and_damage_is_still_an_error() {
        let mut record = [0_u8; 64];
        record[0] = 0x40;
        record[2] = 0x40;
        record[17] = 0x10;
        let three = [record; 3].concat();
        let (whole, end) = steps(&three);
        assert!(whole > 0 && end == Ok(None), "{end:?}");
        let (some, end) = steps(&[&three[..], &[0x40; 10]].concat());
        assert_eq!(some, whole);
        assert!(
            end.unwrap()
                .unwrap()
                .contains("truncated: 10 bytes are left")
        );
        let mut damaged = record;
        damaged[8] = 7;
        let (_, end) = steps(&[[record; 80].concat(), damaged.to_vec()].concat());
        assert!(end.is_err(), "{end:?}");
    }
}
