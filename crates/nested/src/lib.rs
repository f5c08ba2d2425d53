//! A plugin of QEMU that counts what a guest under KVM does in an emulated AMD host with one CPU,
//! and publishes it as a page of counters (docs/environments.md).
//!
//! QEMU's translator calls [`hooks_unsafe`] for each block that it translates. VMRUN begins the
//! guest, and the instruction behind it is the first one after the exit ([`world`]). The data
//! references of the guest go through the TLBs and walk caches of a machine of the model
//! ([`walks`]); a thread publishes what was counted ([`page`]).
//!
//! QEMU 7.2 has version 1 of the interface, which shows neither registers nor memory. So address
//! spaces have no names, page tables are taken to lie in the order of the addresses, and the page
//! that INVLPG names stays in the modelled TLB.

#![cfg_attr(test, allow(dead_code))] // A test is no plugin: there is no QEMU to link with.

#[cfg(not(test))]
mod api_unsafe;
mod decode;
#[cfg(not(test))]
mod hooks_unsafe;
mod options;
mod page;
mod walks;
mod world;
