//! One workload per file; a new workload is a file and a line in the table.

mod compiler_like;
mod context_switch;
mod dgemm;
mod echo;
mod fault_storm;
mod fork_exec_storm;
mod gups;
mod gzip_like;
mod memory;
mod mmap_churn;
mod process;
mod round_trip;
mod timer_tick;
mod touch;

use crate::workload::Workload;

/// All workloads, as `--list` shows them.
pub static WORKLOADS: &[&dyn Workload] = &[
    &touch::SEQUENTIAL,
    &touch::RANDOM,
    &fault_storm::FaultStorm,
    &mmap_churn::MmapChurn,
    &fork_exec_storm::ForkExecStorm,
    &context_switch::ContextSwitch,
    &dgemm::Dgemm,
    &gups::Gups,
    &gzip_like::GzipLike,
    &compiler_like::CompilerLike,
    &timer_tick::TimerTick,
    &round_trip::RoundTrip,
    &echo::Echo,
];

pub fn find(name: &str) -> Option<&'static dyn Workload> {
    let mut workloads = WORKLOADS.iter().copied();
    workloads.find(|workload| workload.description().name == name)
}

#[cfg(test)]
mod tests;
