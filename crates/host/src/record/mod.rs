//! vtax's recorder: one row per interval, with hardware, VMM, kernel and guest events on one axis.
//!
//! An eBPF program on the overflow of the reference event makes the row, or the program that counts
//! an event, at each N-th; others count at tracepoints (`bpf/`). User space empties the rings
//! ([`ring`]), computes differences ([`difference`]) and writes an Arrow stream ([`stream`]), which
//! becomes Parquet ([`parquet`]).

pub mod attached;
pub mod availability;
pub mod btf;
pub mod cli;
pub mod clock;
pub mod consumer;
pub mod difference;
pub mod files;
pub mod hotplug;
pub mod interval;
pub mod online;
pub mod options;
pub mod page_samples;
pub mod parquet;
pub mod perf;
pub mod permission;
pub mod plan;
pub mod program;
pub mod reference;
pub mod ring;
pub mod rotation;
pub mod row;
pub mod session;
pub mod skew;
pub mod sources;
mod spill;
mod stacks;
mod statistics_unsafe;
pub mod stillness;
pub mod stream;
pub mod summary;
pub mod target;
mod traced;
pub mod vcpu_clock;
pub mod watch;
pub mod xen;
