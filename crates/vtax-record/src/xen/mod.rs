//! Xen: recorded output of `xentrace` becomes rows, and `xenperf`'s text becomes counters.

mod events;
mod rows;
mod trace;
mod xenperf;

pub use events::EVENTS;
pub use rows::{Imported, import};
pub use trace::{Record, Records, TraceError};
pub use xenperf::{Perf, parse};
