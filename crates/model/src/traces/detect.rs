//! Finds a file's format by its content.

use crate::traces::champsim::{self, CHAMPSIM_BYTES, CLOUDSUITE_BYTES};
use crate::traces::error::Fault;
use crate::traces::input::Input;
use crate::traces::vtrace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// vtax's own format.
    Vtrace,
    /// `ChampSim`'s `input_instr`: records of 64 bytes.
    ChampSim,
    /// `ChampSim`'s `cloudsuite_instr`: records of 96 bytes.
    CloudSuite,
}

impl Format {
    /// The format's name in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vtrace => "vtrace",
            Self::ChampSim => "champsim",
            Self::CloudSuite => "cloudsuite",
        }
    }
}

/// Bytes that are examined: 64 `ChampSim` records.
const START: usize = 4096;

/// The format of the data in `input`; nothing is consumed.
pub(crate) fn detect(input: &mut Input) -> Result<Format, Fault> {
    let available = input.fill(START);
    let start = &available[..available.len().min(START)];
    if start.starts_with(&vtrace::MAGIC) {
        return Ok(Format::Vtrace);
    }
    if champsim::is_plausible::<CHAMPSIM_BYTES>(start) {
        return Ok(Format::ChampSim);
    }
    if champsim::is_plausible::<CLOUDSUITE_BYTES>(start) {
        return Ok(Format::CloudSuite);
    }
    let reason = if start.is_empty() {
        "it is empty"
    } else if start.len() < CHAMPSIM_BYTES && vtrace::MAGIC.starts_with(start) {
        "it ends within the first eight bytes of a .vtrace"
    } else {
        "its beginning matches no known format"
    };
    Err(Fault::NotATrace(reason.into()))
}
