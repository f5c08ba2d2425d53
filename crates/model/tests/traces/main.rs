//! The readers of traces: what each format means, and arbitrary bytes through all of them.

#![allow(clippy::unwrap_used)] // these are tests, although not marked one by one

mod formats;
mod fuzz;
mod support;
