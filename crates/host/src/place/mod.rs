//! Which threads of a host work for guests, what they do, and where they run.
//!
//! [`domain`] finds and classifies these threads. [`window`] measures what each did for a while,
//! with [`counting`] where eBPF is allowed. [`slow`] holds some of them below full speed by one of
//! the [`backends`]. [`apply`] puts them on the CPUs of a [`plan`], and back. [`watch`] moves them
//! by itself, one thread at a time.

pub mod apply;
pub mod backends;
pub mod cli;
pub mod cores;
pub mod counting;
pub mod cpus;
pub mod domain;
pub mod end;
pub mod host;
pub mod journal;
pub mod plan;
pub mod role;
pub mod slow;
mod tables;
pub mod watch;
pub mod window;
mod xen_cap;
