//! Xen: recorded output of `xentrace` becomes rows, and `xenperf`'s text becomes counters.

pub mod cli;
mod columns;
mod cpu;
mod events;
mod import;
mod live;
mod spool;
mod timeline;
mod trace;
mod writer;
mod xenperf;

pub use events::EVENTS;
pub use import::{ImportOptions, Imported, import};
pub use live::{LiveOptions, record};
pub use trace::{Lost, Record, Records, TraceError};
pub use xenperf::{Growth, Perf, growth, parse};
