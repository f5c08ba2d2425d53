//! The lines of a log.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::processor::Processor;
use crate::search::race::{Raced, Verdict};
use crate::statistics::Spread;

/// What a log belongs to: a search continues only where all of it is the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`](super::FORMAT).
    pub format: u32,
    /// The program's version: another version may generate other code.
    pub agent: String,
    pub processor: Processor,
    /// The user's options, by name.
    pub search: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It raced against the winner at that time.
    Raced(Raced),
    /// It was not timed, for this reason.
    Rejected(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Header(Header),
    Start(Start),
    Size(Size),
    Trial(Trialled),
    /// The measurement of a routine after the search.
    Measured(Timed),
}

/// The size of the timed problem, which may be smaller than the size asked for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Size {
    /// Rows and columns.
    pub size: usize,
}

/// The sizes of the caches from which the model computes its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Bytes of the L1 data cache; `None`: unknown.
    pub l1_bytes: Option<u64>,
    pub l2_bytes: Option<u64>,
    /// Where the sizes come from.
    pub from: StartSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartSource {
    /// They were measured.
    Probes,
    /// The kernel or CPUID claims them.
    Claimed,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Trialled {
    #[serde(rename = "ROUTINE")]
    pub routine: String,
    #[serde(flatten)]
    pub fields: Map<String, Value>,
    #[serde(rename = "MFLOP", skip_serializing_if = "Option::is_none")]
    mflop: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<String>,
}

impl Trialled {
    pub fn new(routine: &str, fields: Map<String, Value>, outcome: &Outcome) -> Self {
        let (raced, rejected) = match outcome {
            Outcome::Raced(raced) => (Some(raced), None),
            Outcome::Rejected(why) => (None, Some(why.clone())),
        };
        Self {
            routine: routine.into(),
            fields,
            mflop: raced.map(|raced| raced.gflops * 1e3),
            runs: raced.map(|raced| raced.runs),
            ratio: raced.map(|raced| raced.ratio),
            verdict: raced.map(|raced| raced.verdict),
            rejected,
        }
    }

    /// The outcome in a line; the error says what is missing.
    pub fn outcome(&self) -> Result<Outcome, String> {
        if let Some(why) = &self.rejected {
            return Ok(Outcome::Rejected(why.clone()));
        }
        match (self.verdict, self.mflop, self.runs, self.ratio) {
            (Some(verdict), Some(mflop), Some(runs), Some(ratio)) => Ok(Outcome::Raced(Raced {
                verdict,
                gflops: mflop / 1e3,
                runs,
                ratio,
            })),
            _ => Err("a trial without MFLOP, runs, ratio or verdict".into()),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Timed {
    #[serde(rename = "ROUTINE")]
    pub routine: String,
    #[serde(flatten)]
    pub fields: Map<String, Value>,
    #[serde(rename = "MFLOP")]
    mflop: f64,
    low: Option<f64>,
    high: Option<f64>,
    runs: usize,
}

impl Timed {
    pub fn new(routine: &str, fields: Map<String, Value>, spread: &Spread) -> Self {
        let mflop = |gflops: f64| gflops * 1e3;
        Self {
            routine: routine.into(),
            fields,
            mflop: mflop(spread.gflops),
            low: spread.low.map(mflop),
            high: spread.high.map(mflop),
            runs: spread.runs,
        }
    }

    pub fn spread(&self) -> Spread {
        let gflops = |mflop: f64| mflop / 1e3;
        Spread {
            gflops: gflops(self.mflop),
            low: self.low.map(gflops),
            high: self.high.map(gflops),
            runs: self.runs,
        }
    }
}
