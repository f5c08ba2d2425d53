//! The kernel's own list of its timers: `/proc/timer_list`, for root.

use serde::Serialize;
use vtax_sys::tree::Tree;

use crate::clocks::reasons::{Reasons, keep};

const FILE: &str = "/proc/timer_list";
/// More CPUs than Linux runs on, and more characters than a device's name has.
const MOST: usize = 8192;
const NAME_CHARS: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timers {
    pub cpus: Option<Vec<Cpu>>,
    /// What interrupts each CPU when a timer is over, and the device for all of them.
    pub devices: Option<Vec<Device>>,
    /// Why a field is `None`.
    pub reasons: Reasons,
}

/// The high-resolution timers of a CPU; `None` where the kernel's text has no such line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    #[serde(rename = "cpu")]
    pub number: u32,
    /// The coarsest resolution of its clock bases.
    pub resolution_ns: Option<u64>,
    /// Does it program its clock event device for each timer, rather than tick?
    pub high_resolution: Option<bool>,
    pub pending: u64,
    /// Timer interrupts, those handled again because time had passed, and those given up on.
    pub events: Option<u64>,
    pub retries: Option<u64>,
    pub hangs: Option<u64>,
    pub longest_hang_ns: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// `None`: the broadcast device.
    pub cpu: Option<u32>,
    /// `None`: there is none.
    pub name: Option<String>,
    pub min_delta_ns: Option<u64>,
    pub max_delta_ns: Option<u64>,
    pub handler: Option<String>,
}

pub fn read(tree: &Tree) -> Timers {
    let mut reasons = Reasons::new();
    let text = tree.bytes(FILE).ok_or_else(|| {
        let why = if tree.exists(FILE) {
            "it takes root"
        } else {
            "the kernel has none"
        };
        format!("cannot read {FILE}: {why}")
    });
    let parsed = text.map(|bytes| parse(&String::from_utf8_lossy(&bytes)));
    let cpus = parsed.clone().and_then(|(cpus, _)| {
        let none = format!("{FILE} names no CPU");
        (!cpus.is_empty()).then_some(cpus).ok_or(none)
    });
    let devices = parsed.and_then(|(_, devices)| {
        let none = format!("{FILE} names no clock event device");
        (!devices.is_empty()).then_some(devices).ok_or(none)
    });
    Timers {
        cpus: keep(&mut reasons, "cpus", cpus),
        devices: keep(&mut reasons, "devices", devices),
        reasons,
    }
}

/// The CPUs and devices that the kernel's text names; lines of other forms are passed over.
fn parse(text: &str) -> (Vec<Cpu>, Vec<Device>) {
    let (mut cpus, mut devices) = (Vec::<Cpu>::new(), Vec::<Device>::new());
    let mut tick_of = None;
    for line in text.lines() {
        if line.trim_start().starts_with('#') {
            if let Some(cpu) = cpus.last_mut().filter(|_| !line.contains("expires")) {
                cpu.pending += 1;
            }
            continue;
        }
        let Some((key, value)) = line.split_once(':') else {
            if line == "Broadcast device" {
                tick_of = None;
            }
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        match key {
            "cpu" if cpus.len() < MOST => {
                if let Ok(number) = value.parse() {
                    cpus.push(Cpu {
                        number,
                        ..Cpu::default()
                    });
                }
            }
            "Per CPU device" => tick_of = value.parse().ok(),
            "Clock Event Device" if devices.len() < MOST => devices.push(Device {
                cpu: tick_of,
                name: (value != "<NULL>").then(|| short(value)),
                ..Device::default()
            }),
            _ => {
                if let Some(device) = devices.last_mut() {
                    device.take(key, value);
                } else if let Some(cpu) = cpus.last_mut() {
                    cpu.take(key, value);
                }
            }
        }
    }
    (cpus, devices)
}

impl Cpu {
    fn take(&mut self, key: &str, value: &str) {
        let found = number(value);
        match key {
            ".resolution" => self.resolution_ns = self.resolution_ns.max(found),
            ".hres_active" => self.high_resolution = found.map(|active| active != 0),
            ".nr_events" => self.events = found,
            ".nr_retries" => self.retries = found,
            ".nr_hangs" => self.hangs = found,
            ".max_hang_time" => self.longest_hang_ns = found,
            _ => {}
        }
    }
}

impl Device {
    fn take(&mut self, key: &str, value: &str) {
        match key {
            "min_delta_ns" => self.min_delta_ns = number(value),
            "max_delta_ns" => self.max_delta_ns = number(value),
            "event_handler" => self.handler = Some(short(value)),
            _ => {}
        }
    }
}

/// A number before a unit.
fn number(value: &str) -> Option<u64> {
    value.split_whitespace().next()?.parse().ok()
}

fn short(name: &str) -> String {
    name.chars().take(NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Shortened from Linux 6.1.
    const TEXT: &str = "Timer List Version: v0.10\nnow at 16 nsecs\n\ncpu: 0\n clock 0:\n  \
        .resolution: 1 nsecs\nactive timers:\n #0: <b2>, tick_sched_timer, S:01\n # expires at \
        9-9 nsecs [in 2 to 2 nsecs]\n clock 1:\n  .resolution: 4000000 nsecs\n  .hres_active    : \
        1\n  .nr_events      : 380893\n  .nr_retries     : 113\n  .max_hang_time  : 7\n\ncpu: 1\n  \
        .hres_active    : 0\nTick Device: mode:     1\nBroadcast device\nClock Event Device: \
        <NULL>\ntick_broadcast_mask: 0\n\nTick Device: mode:     1\nPer CPU device: 1\nClock Event \
        Device: lapic-deadline\n max_delta_ns:   1467\n min_delta_ns:   1000\n event_handler:  \
        hrtimer_interrupt\n";

    #[test]
    fn the_kernels_text_names_cpus_and_devices() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("proc/timer_list"), TEXT).unwrap();
        let found = read(&Tree::at(folder.path()));
        let cpus = found.cpus.unwrap();
        let first = &cpus[0];
        assert_eq!((first.resolution_ns, first.pending), (Some(4_000_000), 1));
        assert_eq!(
            (first.events, first.retries, first.hangs),
            (Some(380_893), Some(113), None)
        );
        assert_eq!(first.longest_hang_ns, Some(7));
        assert_eq!((cpus[1].number, cpus[1].high_resolution), (1, Some(false)));
        let devices = found.devices.unwrap();
        assert_eq!((devices[0].cpu, &devices[0].name), (None, &None));
        assert_eq!(devices[1].cpu, Some(1));
        assert_eq!(devices[1].name.as_deref(), Some("lapic-deadline"));
        assert_eq!(
            (devices[1].min_delta_ns, devices[1].max_delta_ns),
            (Some(1000), Some(1467))
        );
        assert_eq!(devices[1].handler.as_deref(), Some("hrtimer_interrupt"));
    }

    #[test]
    fn what_is_absent_or_strange_has_a_reason() {
        let found = read(&Tree::at("/nonexistent"));
        assert_eq!(found.cpus, None);
        assert!(found.reasons["devices"].ends_with("the kernel has none"));
        assert_eq!(
            parse("cpu: x\n.hres_active: 1\n:::\nPer CPU device: -1\n"),
            (vec![], vec![])
        );
    }
}
