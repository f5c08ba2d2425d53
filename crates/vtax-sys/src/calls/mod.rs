//! The system calls and instructions that need `unsafe`. Nothing here decides anything.

#![allow(unsafe_code)]

pub mod children;
pub mod descriptors;
pub mod memory;
pub mod network;
pub mod perf;
pub mod privileges;
pub mod processor;
pub mod signals;
