//! A plugin of QEMU that observes a Linux guest with one CPU (docs/trace-format.md).
//!
//! QEMU's translator calls [`hooks_unsafe`] for each block that it translates; the hook examines
//! each instruction ([`decode`]) and adds callbacks. What the callbacks see goes to the
//! [`recorder`], which hands it in batches to a separate thread ([`consumer`]). [`tables`] follows
//! the guest's page tables: a callback sees what the guest's instructions read and write, not what
//! the page walker does.
//!
//! The guest is expected to have four-level tables, no address space randomization of its kernel
//! and one root per process (`nokaslr no5lvl nopti`): its kernel then sees all memory at one place.

#![cfg_attr(test, allow(dead_code))] // A test is no plugin: there is no QEMU to link with.

#[cfg(not(test))]
mod api_unsafe;
mod batch;
mod consumer;
mod decode;
mod fetches;
#[cfg(not(test))]
mod hooks_unsafe;
mod instruction_tlb;
mod layout;
mod options;
mod recorder;
#[cfg(not(test))]
mod sampled;
mod schedule;
mod summary;
mod tables;
