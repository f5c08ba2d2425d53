//! Readers of reference traces as [`crate::step::StepSource`]s.
//!
//! [`open`] finds out by content how a stream is compressed and which format it has:
//!
//! | format | references | instructions | base CPI |
//! | --- | --- | --- | --- |
//! | [`vtrace`] | all steps, operations and phases too | counted, or assumed by its recorder | recorded |
//! | `ChampSim`, `CloudSuite` | source addresses load, destinations store | one per record | assumed |
//!
//! Data are streamed: a trace takes the same memory whatever its length or what it claims to be, so
//! that a decompression bomb costs time only. A stream is not trusted: whatever it holds, the result
//! is steps, an end, or an error of one line.
//!
//! ```
//! use vtax_model::step::Step;
//! use vtax_model::traces::open;
//!
//! // One record of ChampSim's: an instruction at 0x400000 that stores to 0x1000.
//! let mut record = [0_u8; 64];
//! record[2] = 0x40;
//! record[17] = 0x10;
//! let mut trace = open(Box::new(std::io::Cursor::new(record)), "example")?;
//! while let Some(step) = trace.step()? {
//!     if let Step::References { references, instructions, .. } = step {
//!         assert!(references.iter().all(|reference| reference.write()));
//!         assert_eq!((references.len(), instructions), (1, 1));
//!     }
//! }
//! # Ok::<(), vtax_model::traces::TraceError>(())
//! ```

mod block;
mod champsim;
mod compression;
mod detect;
mod error;
mod input;
mod trace;
mod up_to_cut;
pub mod vtrace;

pub use block::BLOCK_REFERENCES;
pub use detect::Format;
pub use error::{Fault, Position, TraceError};
pub use trace::{Trace, open};
pub use up_to_cut::UpToCut;
