//! What runs inside a machine under measurement.
//!
//! The program `vtax-agent` is a thin shell around this library: it describes the machine
//! ([`facts`]), its clocks ([`clocks`]), its processor and memory ([`probe`]), times what operations
//! cost on it ([`prices`]), tunes matrix kernels on it ([`tune`]), runs commands and measures them ([`run`]), runs its own workloads
//! ([`workload`]), answers requests on a channel ([`serve`]) and is the first process of a guest
//! ([`init`]). `PROTOCOL.md` is the contract of the last two.

pub mod channel;
pub mod check_fp;
pub mod clock;
pub mod clocks;
pub mod counters;
pub mod descendants;
pub mod facts;
pub mod frame;
pub mod guest;
pub mod init;
pub mod launch;
pub mod memory;
pub mod parts;
pub mod prices;
pub mod probe;
pub mod request;
pub mod root;
pub mod run;
pub mod run_answer;
pub mod serve;
pub mod steal;
pub mod supervise;
pub mod surroundings;
pub mod swap;
pub mod traced;
pub mod transfer;
pub mod tune;
mod working_set;
pub mod workload;

/// The agent's version, as `hello` and the facts report it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
