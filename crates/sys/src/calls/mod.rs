//! The system calls and instructions that need `unsafe`. This module makes no decisions.

#![allow(unsafe_code)]

pub mod children;
pub mod clocks;
pub mod descriptors;
pub mod memory;
pub mod network;
pub mod perf;
pub mod privileges;
pub mod processor;
pub mod scheduling;
pub mod seccomp;
pub mod signals;
pub mod swap;
