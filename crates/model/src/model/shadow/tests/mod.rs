//! A guest, its shadow tables and nothing else: every reference misses the TLB.

mod agile;
mod kvm;
mod rig;
mod shapes;
