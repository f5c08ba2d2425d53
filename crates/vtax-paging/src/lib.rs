//! A model of virtualized address translation, and the policies that choose a paging mode.
//!
//! No I/O, no global state; the same input and seed give the same output. Cycles that come out of
//! here are modelled and are named so wherever they are shown.
//!
//! The parts, in the order in which data flows: a [`step::Source`] supplies references and
//! operations; the guest keeps its page tables and turns both into translations and
//! [`guest_event::GuestEvent`]s; one core per mode follows them and fills its
//! [`counters::Counters`]; a [`policy::Policy`] reads what a VMM could read and chooses the mode.

// Counts and cycles are kept as f64, exact up to 2^53, so that samples can be scaled.
#![allow(clippy::cast_precision_loss)]

pub mod address;
pub mod bill;
pub mod core;
pub mod counters;
mod description;
pub mod error;
pub mod guest;
pub mod guest_event;
pub mod machine;
pub mod mode;
mod names;
pub mod policy;
pub mod presets;
pub mod shadow;
pub mod simulation;
pub mod step;
pub mod workload;
