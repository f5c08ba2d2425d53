//! Control of the paging mode of a KVM host: counters in, policy, switch of the running guests.
//!
//! In each window the [`sensors`] are read and added up over all guests, because the mode belongs
//! to the host. The [`drive`]r feeds a policy of `vtax-model`, the same source that the simulation
//! runs. The [`guard`] says whether the host may be switched now. The [`host`] is asked whether a
//! switch is possible, and is switched when the user asked for that. Whatever fails, the current
//! mode is kept and the [`line`] of the window says why.

// Counts are kept as f64, exact up to 2^53, as the policies take them.
#![allow(clippy::cast_precision_loss)]

pub mod cli;
pub mod daemon;
pub mod decision;
pub mod drive;
mod follow;
pub mod gain;
pub mod guard;
pub mod host;
pub mod huge_pages;
pub mod line;
pub mod metrics;
pub mod policy_file;
pub mod sensors;
pub mod state;
mod unit;
