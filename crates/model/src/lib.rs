//! A model of virtualized address translation, and the policies that choose a paging mode.
//!
//! The crate opens no files, and has no global state; the same input and seed give the same output.
//! All cycles from this crate are modelled, and are called so wherever they are shown.
//!
//! The parts, in the order in which data flows: a [`step::StepSource`], a synthetic [`workload`] or a
//! recorded one ([`traces`]), supplies references and operations; in the [`model`], the guest keeps
//! its page tables and turns both into translations and guest events; one core per mode follows
//! them and fills its counters; a [`policy::Policy`] reads what a VMM could read and chooses the
//! mode. A [`simulation`] runs them together.

// Counts and cycles are kept as f64, exact up to 2^53, so that samples can be scaled.
#![allow(clippy::cast_precision_loss)]

mod description;
pub mod error;
pub mod limits;
pub mod model;
mod names;
pub mod policy;
pub mod presets;
pub mod simulation;
pub mod step;
pub mod traces;
pub mod workload;
