//! A plugin of QEMU (TCG, a thread for each CPU) that slows emulated CPUs uniformly
//! (docs/environments.md).
//!
//! QEMU calls [`plugin_unsafe`] before each block of a CPU. From time to time a [`core`] compares
//! the CPU time of its thread with its speed, and spins until the two agree. The speed of each CPU
//! is in a [`file`](speed), which may be written at any time.

#![cfg_attr(test, allow(dead_code))] // A test is no plugin: there is no QEMU to link with.

mod core;
mod pace;
#[cfg(not(test))]
mod plugin_unsafe;
mod speed;
