//! What the caller of a reader knows and the trace may not say.

use std::fmt;

use crate::traces::error::Fault;

/// Cycles per instruction without translation cost where neither trace nor option says it.
///
/// An assumption, not a measurement: it is the unit in which translation cost is compared.
pub const ASSUMED_BASE_CPI: f32 = 1.0;

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// vtax's own format.
    Vtrace,
    /// `ChampSim`'s `input_instr`: records of 64 bytes.
    ChampSim,
    /// `ChampSim`'s `cloudsuite_instr`: records of 96 bytes.
    CloudSuite,
    /// The text of `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Vtrace, Self::ChampSim, Self::CloudSuite, Self::Lackey];

    /// The format's name as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vtrace => "vtrace",
            Self::ChampSim => "champsim",
            Self::CloudSuite => "cloudsuite",
            Self::Lackey => "lackey",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How to read a trace. The default detects the format and refuses a truncated trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The format; `None` detects it by content.
    pub format: Option<Format>,
    /// Cycles per instruction without translation cost, instead of what the trace says;
    /// `None`: the trace's own, else [`ASSUMED_BASE_CPI`].
    pub base_cpi: Option<f32>,
    /// Instructions per reference, instead of the trace's own count; `None`: the trace's count.
    pub instructions_per_reference: Option<f64>,
    /// End cleanly after so many references; `None`: read to the end.
    pub reference_limit: Option<u64>,
    /// Take a truncated trace for one that ends there: [`crate::traces::Trace::truncation`] says so. A
    /// trace that is cut before its first record, line or frame is not a trace either way.
    pub accept_truncated: bool,
}

impl Options {
    /// Fails, naming the option, when a value is out of its range.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.base_cpi.is_some_and(|cpi| !is_cpi(cpi)) {
            return Err(Fault::Option {
                field: "base_cpi",
                reason: "must be a positive number".into(),
            });
        }
        if self
            .instructions_per_reference
            .is_some_and(|r| !is_ratio(r))
        {
            return Err(Fault::Option {
                field: "instructions_per_reference",
                reason: RATIO.into(),
            });
        }
        Ok(())
    }
}

/// What [`is_ratio`] demands.
pub(crate) const RATIO: &str = "must be a number from 0 to 1000000";

/// Whether a workload could have so many instructions per reference.
pub(crate) fn is_ratio(ratio: f64) -> bool {
    (0.0..=1e6).contains(&ratio)
}

/// Whether a machine could have this CPI.
pub(crate) fn is_cpi(cpi: f32) -> bool {
    cpi.is_finite() && cpi > 0.0
}
