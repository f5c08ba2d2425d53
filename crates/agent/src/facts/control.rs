//! The limits of this process's control groups.

use serde::Serialize;

use vtax_sys::cgroup::locate::{Location, Version, locate};
use vtax_sys::tree::Tree;

/// Version 1 writes "no limit" as the largest multiple of the page size, about 2^63 bytes.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The tightest limits of the group and its ancestors, as far as they are visible.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cgroup {
    /// The interface that governs memory; `None`: no group.
    pub version: Option<u8>,
    pub memory_limit_bytes: Option<u64>,
    /// CPU time per elapsed time, in cores.
    pub cpu_quota: Option<f64>,
}

pub(super) fn read(tree: &Tree) -> Cgroup {
    let memory = locate(tree, "memory");
    let version = memory.as_ref().map(|location| match location.version {
        Version::V1 => 1,
        Version::V2 => 2,
    });
    Cgroup {
        version,
        memory_limit_bytes: memory.and_then(|location| memory_limit(tree, &location)),
        cpu_quota: locate(tree, "cpu").and_then(|location| cpu_quota(tree, &location)),
    }
}

fn memory_limit(tree: &Tree, location: &Location) -> Option<u64> {
    let file = match location.version {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    let limits = location.ancestry().into_iter();
    limits
        .filter_map(|folder| tree.number::<u64>(&format!("{folder}/{file}")))
        .filter(|bytes| *bytes < NO_LIMIT_BYTES)
        .min()
}

fn cpu_quota(tree: &Tree, location: &Location) -> Option<f64> {
    let quotas = location.ancestry().into_iter();
    quotas
        .filter_map(|folder| match location.version {
            Version::V1 => quota_of_version_1(tree, folder),
            Version::V2 => quota_of_version_2(tree, folder),
        })
        .min_by(f64::total_cmp)
}

/// Quota and period in microseconds; a quota of -1 means no limit.
fn quota_of_version_1(tree: &Tree, folder: &str) -> Option<f64> {
    let quota: f64 = tree.number(&format!("{folder}/cpu.cfs_quota_us"))?;
    let period: f64 = tree.number(&format!("{folder}/cpu.cfs_period_us"))?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// `QUOTA PERIOD` in microseconds, or `max PERIOD`.
fn quota_of_version_2(tree: &Tree, folder: &str) -> Option<f64> {
    let text = tree.text(&format!("{folder}/cpu.max"))?;
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}
