//! The machine: a guest with its page tables, and one core for each paging mode that follows it.

pub mod address;
pub mod core;
pub mod cost_account;
pub mod counters;
pub mod guest;
pub mod guest_event;
pub mod host_pages;
pub mod machine;
pub mod mode;
pub mod shadow;
